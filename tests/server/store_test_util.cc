#include "skrull/tests/server/store_test_util.h"

#include <stdlib.h>

#include <stdexcept>
#include <system_error>

#include "skrull/server/convert.h"

namespace skrull {

std::ostream& operator<<(std::ostream& out, const PlanRecord& record) {
  return out << "{" << record.key.job << " generation " << record.generation
             << " step " << record.key.step << " attempt " << record.key.attempt
             << " request " << record.request_digest << ", "
             << record.plan.size() << " bytes}";
}

}  // namespace skrull

namespace skrull::testing {

StoreDir::StoreDir() {
  std::string name =
      (std::filesystem::temp_directory_path() / "skrull-store-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), name);
  }
  path_ = name;
}

StoreDir::~StoreDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::unique_ptr<Store> MustOpen(const std::string& uri) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(uri);
  if (!store.ok()) throw std::runtime_error(store.status().ToString());
  return *std::move(store);
}

std::string OpenRefusal(const std::string& uri) {
  const absl::Status status = OpenStore(uri).status();
  if (ReasonOf(status) != ErrorReason::kStoreFailed) {
    throw std::runtime_error("not refused as expected: " + status.ToString());
  }
  return std::string(status.message());
}

ErrorReason ReasonOf(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail ? detail->reason : ErrorReason::kUnspecified;
}

v1::JobSpec SpecOf(int variant) {
  v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(64);
  spec.mutable_model()->set_layer_count(2);
  spec.mutable_model()->set_attention_head_count(4);
  spec.mutable_parallelism()->set_cp_size(1 + variant);
  spec.mutable_memory()->set_bucket_size_tokens(100);
  (*spec.mutable_labels())["owner"] = "tests";
  (*spec.mutable_labels())["variant"] = std::to_string(variant);
  return spec;
}

JobRecord Wanted(const std::string& name, int variant, int64_t generation) {
  JobRecord record;
  record.name = name;
  record.spec = SpecOf(variant);
  record.generation = generation;
  record.owner = "owner-" + std::to_string(variant % 2);
  record.calibration.set_epoch(77);  // not read by Create
  record.version = 99;               // nor this
  record.create_time_micros = 1'700'000'000'000'000 + variant;
  return record;
}

PlanRecord PlanOf(const std::string& job, int64_t generation, int64_t step,
                  int32_t attempt, size_t padding) {
  PlanRecord record;
  record.key = {.job = job, .step = step, .attempt = attempt};
  record.generation = generation;
  record.request_digest = "digest-" + std::to_string(step);
  record.plan = job + '\0' + std::to_string(generation) + '\0' +
                std::to_string(step) + '\0' + std::to_string(attempt) +
                std::string(padding, '\0');
  return record;
}

v1::Calibration EpochOf(int64_t epoch) {
  v1::Calibration calibration;
  calibration.set_epoch(epoch);
  calibration.set_cause(v1::CALIBRATION_CAUSE_REFIT);
  calibration.set_bucket_size_tokens(1000 - epoch % 1000);
  return calibration;
}

v1::StepReport ReportOf(int64_t step, int32_t attempt, int32_t rank,
                        int64_t peak_bytes) {
  v1::StepReport report;
  report.set_step(step);
  report.set_attempt(attempt);
  report.set_rank(rank);
  report.set_outcome(v1::STEP_OUTCOME_OK);
  report.set_peak_bytes(peak_bytes);
  return report;
}

std::string TextOf(const JobRecord& record) {
  return record.name + " " + std::to_string(record.generation) + " " +
         record.owner + " " + std::to_string(record.create_time_micros) + " " +
         std::to_string(record.birth) + " " + std::to_string(record.version) +
         " " + record.calibration.ShortDebugString() + " " +
         Sha256Hex(CanonicalBytes(record.spec));
}

std::string TextOf(const PlanRecord& record) {
  return record.key.job + " " + std::to_string(record.generation) + " " +
         std::to_string(record.key.step) + " " +
         std::to_string(record.key.attempt) + " " + record.request_digest +
         " " + Sha256Hex(record.plan);
}

std::string ContentsOf(Store& store) {
  std::string text = "count " + std::to_string(store.Count().value()) + "\n";
  const std::vector<JobRecord> jobs = store.List("", 100).value();
  for (const JobRecord& job : jobs) {
    text += TextOf(job) + "\n";
    const auto epochs = store.Calibrations(job.name, job.generation);
    for (const v1::Calibration& epoch : epochs.value()) {
      text += "  " + epoch.ShortDebugString() + "\n";
    }
    const auto latest = store.LatestSteps(job.name, job.generation, 3);
    for (const PlanKey& key : latest.value()) {
      text += "  " + std::to_string(key.step) + "/" +
              std::to_string(key.attempt) + "\n";
    }
    for (int64_t step = 0; step < 12; ++step) {
      for (int32_t attempt = 0; attempt < 3; ++attempt) {
        const PlanKey key = {job.name, step, attempt};
        if (const auto plan = store.Find(key, job.generation).value()) {
          text += "  " + TextOf(*plan) + "\n";
        }
        const auto reports = store.Reports(key, job.generation, kAllRanks);
        for (const v1::StepReport& report : reports.value()) {
          text += "  " + report.ShortDebugString() + "\n";
        }
      }
    }
  }
  return text;
}

}  // namespace skrull::testing
