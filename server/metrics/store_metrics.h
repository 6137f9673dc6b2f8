// How long the store takes, and whether it works.
#ifndef SKRULL_SERVER_METRICS_STORE_METRICS_H_
#define SKRULL_SERVER_METRICS_STORE_METRICS_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace skrull {

// What a store is asked: label `operation`.
enum class StoreOperation : int8_t {
  kCreateJob,
  kGetJob,
  kListJobs,
  kDeleteJob,
  kCountJobs,
  kCommitPlan,
  kFindPlan,
  kPutReport,
  kListReports,
  kListSteps,
  kAdvanceEpoch,
  kListEpochs,
  kCatchUp,  // JobStore::WhenCurrent
};
inline constexpr int kStoreOperations = 13;

// Thread-safe.
class StoreMetrics {
 public:
  // Adds its metrics to `registry`, which must outlive the object.
  explicit StoreMetrics(prometheus::Registry& registry);

  // An operation took `seconds` and ended, at `now`, with `status`: it failed
  // if that is kStoreFailed or kInternal, and was refused if it is any other
  // error.
  void Count(StoreOperation operation, const absl::Status& status,
             double seconds, std::chrono::system_clock::time_point now);

 private:
  static constexpr int kOutcomes = 3;  // ok, refused, failed

  std::array<prometheus::Histogram*, kStoreOperations> seconds_;
  std::array<std::array<prometheus::Counter*, kOutcomes>, kStoreOperations>
      operations_;
  prometheus::Gauge* last_failure_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_STORE_METRICS_H_
