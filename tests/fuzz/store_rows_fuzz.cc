// A store with a value overwritten, as a damaged file or another program could
// leave it: the first byte picks a column of bytes or text, the rest of the
// input takes the place of its values. Reading gives what is there, or refuses
// it; what is read as a plan hands out shares. Seeds: corpus/store_rows.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/committed_plan.h"
#include "skrull/server/convert.h"
#include "skrull/server/sqlite.h"
#include "skrull/server/store.h"

namespace {

constexpr char kJob[] = "run";
constexpr int64_t kStep = 3;
constexpr int kBusyMilliseconds = 2000;

[[noreturn]] void Broken(const std::string& what, const absl::Status& status) {
  std::fprintf(stderr, "broken promise: %s: %s\n", what.c_str(),
               status.ToString().c_str());
  std::abort();
}

void Must(const absl::Status& status) {
  if (!status.ok()) Broken("a sound store", status);
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

skrull::v1::JobSpec Spec() {
  skrull::v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(64);
  spec.mutable_model()->set_layer_count(2);
  spec.mutable_model()->set_attention_head_count(4);
  spec.mutable_parallelism()->set_dp_size(2);
  spec.mutable_parallelism()->set_cp_size(4);
  spec.mutable_memory()->set_bucket_size_tokens(10);
  return spec;
}

// A store with one job, one plan of it and one report, and a second connection
// to its file that overwrites what it likes. Lives as long as the process.
class Store {
 public:
  Store()
      : path_("/dev/shm/skrull-fuzz-" + std::to_string(::getpid()) + ".db") {
    for (const char* suffix : {"", "-wal", "-shm", "-lock"}) {
      std::filesystem::remove(path_ + suffix);
    }
    store_ = Must(skrull::OpenStore("sqlite:" + path_));
    skrull::JobRecord job = {.name = kJob, .spec = Spec()};
    generation_ = Must(store_->Create(job, {})).generation;
    Must(store_->Commit(SoundPlan(), 8).status());
    skrull::v1::StepReport report;
    report.set_step(kStep);
    report.set_outcome(skrull::v1::STEP_OUTCOME_OK);
    Must(store_->PutReport({kJob, generation_}, report, 8));
    other_ = Must(skrull::SqliteDatabase::Open(path_, kBusyMilliseconds));
    ReadColumns();
  }

  size_t columns() const { return columns_.size(); }

  // Puts `value` into every row of a column, has `read` look at the store, and
  // puts the rows back.
  template <typename Read>
  void With(size_t column, const std::string& value, const Read& read) {
    const Column& at = columns_[column];
    skrull::SqliteStatement write = Must(other_.Prepare(
        "UPDATE \"" + at.table + "\" SET \"" + at.name + "\" = ?"));
    const auto put = [&](const std::string& bytes) {
      return (at.text ? write.BindText(0, bytes) : write.BindBlob(0, bytes))
          .Run();
    };
    if (!put(value).ok()) return;  // a name of 2^31 bytes, and such
    read(*store_, generation_);
    Must(put(at.value));
  }

 private:
  struct Column {
    std::string table;
    std::string name;
    bool text;
    std::string value;  // of the one row
  };

  static skrull::PlanRecord SoundPlan() {
    const auto job = Must(skrull::JobFromProto(Spec()));
    skrull::PlanOptions options;
    options.key = {kJob, kStep, 0};
    const skrull::Plan plan = Must(skrull::MakePlan(
        job, std::vector<int64_t>{3, 7, 5, 31, 2, 9}, options));
    return {.key = plan.key,
            .generation = 1,
            .request_digest = "digest",
            .plan = skrull::CanonicalBytes(skrull::PlanToProto(plan))};
  }

  // All columns of bytes or text of tables that hold one row.
  void ReadColumns() {
    skrull::SqliteStatement list = Must(other_.Prepare(
        "SELECT t.name, c.name, c.type = 'TEXT' FROM sqlite_schema AS t "
        "JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table' "
        "AND t.name NOT LIKE 'sqlite%' AND c.type IN ('BLOB', 'TEXT') "
        "ORDER BY t.name, c.cid"));
    while (Must(list.Step())) {
      columns_.push_back({list.Bytes(0), list.Bytes(1), list.Int(2) != 0, ""});
    }
    for (Column& column : columns_) {
      skrull::SqliteStatement row = Must(other_.Prepare(
          "SELECT \"" + column.name + "\" FROM \"" + column.table + "\""));
      if (!Must(row.Step())) Broken("a row", absl::OkStatus());
      column.value = row.Bytes(0);
      row.Reset();
    }
  }

  const std::string path_;
  std::unique_ptr<skrull::Store> store_;
  int64_t generation_ = 0;
  skrull::SqliteDatabase other_;
  std::vector<Column> columns_;
};

// Refusals of a read: the store is damaged, or the job is not found under a
// name that was overwritten.
void Check(const std::string& what, const absl::Status& status) {
  if (status.ok()) return;
  const auto detail = skrull::GetErrorDetail(status);
  using enum skrull::ErrorReason;
  if (detail &&
      (detail->reason == kStoreFailed || detail->reason == kJobNotFound ||
       detail->reason == kInternal)) {
    return;
  }
  Broken(what, status);
}

void Read(skrull::Store& store, int64_t generation) {
  const auto jobs = store.List("", 10);
  Check("List", jobs.status());
  if (jobs.ok()) {
    for (const skrull::JobRecord& job : *jobs) {
      (void)skrull::JobFromProto(job.spec);
    }
  }
  Check("Get", store.Get(kJob).status());
  const skrull::PlanKey key = {kJob, kStep, 0};
  Check("Reports", store.Reports(key, generation, 10).status());
  Check("Calibrations", store.Calibrations(kJob, generation).status());
  Check("LatestSteps", store.LatestSteps(kJob, generation, 10).status());
  auto plan = store.Find(key, generation);
  Check("Find", plan.status());
  if (!plan.ok() || !plan->has_value()) return;
  const auto decoded = skrull::CommittedPlan::Decode(**std::move(plan));
  Check("Decode", decoded.status());
  if (decoded.ok()) (void)(*decoded)->Share(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Store* const store = new Store();
  if (size == 0 || data[0] >= store->columns()) return 0;
  store->With(data[0],
              std::string(reinterpret_cast<const char*>(data) + 1, size - 1),
              Read);
  return 0;
}
