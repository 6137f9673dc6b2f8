#include "skrull/server/measured_store.h"

#include <chrono>

namespace skrull {
namespace {

const absl::Status& StatusOf(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace

void MeasuredStore::Record(StoreOperation name, const absl::Status& status,
                           std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> spent = clock_->MonotonicNow() - start;
  metrics_->Count(name, status, spent.count(), clock_->Now());
}

template <typename Operation>
auto MeasuredStore::Measure(StoreOperation name, const Operation& operation) {
  const auto start = clock_->MonotonicNow();
  auto result = operation();
  Record(name, StatusOf(result), start);
  return result;
}

absl::StatusOr<JobRecord> MeasuredStore::Create(const JobRecord& wanted,
                                                const CreateTerms& terms) {
  return Measure(StoreOperation::kCreateJob,
                 [&] { return store_->Create(wanted, terms); });
}

absl::StatusOr<JobRecord> MeasuredStore::Get(const std::string& name) {
  return Measure(StoreOperation::kGetJob, [&] { return store_->Get(name); });
}

absl::StatusOr<std::vector<JobRecord>> MeasuredStore::List(
    const std::string& after, int64_t limit) {
  return Measure(StoreOperation::kListJobs,
                 [&] { return store_->List(after, limit); });
}

absl::Status MeasuredStore::Delete(const JobLife& life) {
  return Measure(StoreOperation::kDeleteJob,
                 [&] { return store_->Delete(life); });
}

absl::StatusOr<int64_t> MeasuredStore::Count() {
  return Measure(StoreOperation::kCountJobs, [&] { return store_->Count(); });
}

absl::StatusOr<JobRecord> MeasuredStore::Advance(const JobLife& life,
                                                 const v1::Calibration& next) {
  return Measure(StoreOperation::kAdvanceEpoch,
                 [&] { return store_->Advance(life, next); });
}

absl::StatusOr<std::vector<v1::Calibration>> MeasuredStore::Calibrations(
    const std::string& name, int64_t generation) {
  return Measure(StoreOperation::kListEpochs,
                 [&] { return store_->Calibrations(name, generation); });
}

void MeasuredStore::Watch(Observer observer) {
  store_->Watch(std::move(observer));
}

void MeasuredStore::WhenCurrent(std::function<void(const absl::Status&)> done) {
  store_->WhenCurrent([this, start = clock_->MonotonicNow(),
                       done = std::move(done)](const absl::Status& status) {
    Record(StoreOperation::kCatchUp, status, start);
    done(status);
  });
}

absl::StatusOr<PlanRecord> MeasuredStore::Commit(const PlanRecord& record,
                                                 int64_t kept_steps) {
  return Measure(StoreOperation::kCommitPlan,
                 [&] { return store_->Commit(record, kept_steps); });
}

absl::StatusOr<std::optional<PlanRecord>> MeasuredStore::Find(
    const PlanKey& key, int64_t generation) {
  return Measure(StoreOperation::kFindPlan,
                 [&] { return store_->Find(key, generation); });
}

absl::Status MeasuredStore::PutReport(const JobLife& life,
                                      const v1::StepReport& report,
                                      int64_t kept_steps) {
  return Measure(StoreOperation::kPutReport,
                 [&] { return store_->PutReport(life, report, kept_steps); });
}

absl::StatusOr<std::vector<v1::StepReport>> MeasuredStore::Reports(
    const PlanKey& key, int64_t generation, int64_t limit) {
  return Measure(StoreOperation::kListReports,
                 [&] { return store_->Reports(key, generation, limit); });
}

absl::StatusOr<std::vector<PlanKey>> MeasuredStore::LatestSteps(
    const std::string& job, int64_t generation, int64_t limit) {
  return Measure(StoreOperation::kListSteps,
                 [&] { return store_->LatestSteps(job, generation, limit); });
}

}  // namespace skrull
