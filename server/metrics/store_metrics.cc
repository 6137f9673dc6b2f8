#include "skrull/server/metrics/store_metrics.h"

#include "skrull/planner/error.h"
#include "skrull/server/metrics/builders.h"

namespace skrull {
namespace {

constexpr const char* kOperationNames[kStoreOperations] = {
    "create_job",    "get_job",     "list_jobs",  "delete_job",   "count_jobs",
    "commit_plan",   "find_plan",   "put_report", "list_reports", "list_steps",
    "advance_epoch", "list_epochs", "catch_up"};

enum Outcome : int8_t { kOk, kRefused, kFailed };
constexpr const char* kOutcomeNames[] = {"ok", "refused", "failed"};

Outcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return kOk;
  const ErrorReason reason =
      GetErrorDetail(status).value_or(ErrorDetail{}).reason;
  return reason == ErrorReason::kStoreFailed ||
                 reason == ErrorReason::kInternal ||
                 reason == ErrorReason::kUnspecified
             ? kFailed
             : kRefused;
}

}  // namespace

StoreMetrics::StoreMetrics(prometheus::Registry& registry) {
  for (size_t operation = 0; operation < kStoreOperations; ++operation) {
    const char* const name = kOperationNames[operation];
    seconds_[operation] = AddHistogram(registry, "skrull_store_seconds",
                                       "Time of the store, by operation.",
                                       SecondsBuckets(), {{"operation", name}});
    for (size_t outcome = 0; outcome < kOutcomes; ++outcome) {
      operations_[operation][outcome] = AddCounter(
          registry, "skrull_store_operations_total",
          "Operations of the store, by outcome; `failed` is its own fault.",
          {{"operation", name}, {"outcome", kOutcomeNames[outcome]}});
    }
  }
  last_failure_ =
      AddGauge(registry, "skrull_store_last_failure_timestamp_seconds",
               "When the store failed last, Unix time; 0 if it never did.");
}

void StoreMetrics::Count(StoreOperation operation, const absl::Status& status,
                         double seconds,
                         std::chrono::system_clock::time_point now) {
  const auto index = static_cast<size_t>(operation);
  const Outcome outcome = OutcomeOf(status);
  seconds_[index]->Observe(seconds);
  operations_[index][static_cast<size_t>(outcome)]->Increment();
  if (outcome == kFailed) {
    const std::chrono::duration<double> time = now.time_since_epoch();
    last_failure_->Set(time.count());
  }
}

}  // namespace skrull
