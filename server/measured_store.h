// A store that measures another one.
#ifndef SKRULL_SERVER_MEASURED_STORE_H_
#define SKRULL_SERVER_MEASURED_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skrull/server/clock.h"
#include "skrull/server/metrics/store_metrics.h"
#include "skrull/server/store.h"

namespace skrull {

// Does what `store` does, and counts each operation with its time and outcome.
class MeasuredStore : public Store {
 public:
  // `clock` and `metrics` must outlive the object.
  MeasuredStore(std::unique_ptr<Store> store, const Clock* clock,
                StoreMetrics* metrics)
      : store_(std::move(store)), clock_(clock), metrics_(metrics) {}

  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit) override;
  absl::Status Delete(const JobLife& life) override;
  absl::StatusOr<int64_t> Count() override;
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next) override;
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) override;
  void Watch(Observer observer) override;
  // Measured from the call to `done`.
  void WhenCurrent(std::function<void(const absl::Status&)> done) override;

  absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                    int64_t kept_steps) override;
  absl::StatusOr<std::optional<PlanRecord>> Find(const PlanKey& key,
                                                 int64_t generation) override;
  absl::Status PutReport(const JobLife& life, const v1::StepReport& report,
                         int64_t kept_steps) override;
  absl::StatusOr<std::vector<v1::StepReport>> Reports(const PlanKey& key,
                                                      int64_t generation,
                                                      int64_t limit) override;
  absl::StatusOr<std::vector<PlanKey>> LatestSteps(const std::string& job,
                                                   int64_t generation,
                                                   int64_t limit) override;

 private:
  // What `operation` returns, measured.
  template <typename Operation>
  auto Measure(StoreOperation name, const Operation& operation);
  void Record(StoreOperation name, const absl::Status& status,
              std::chrono::steady_clock::time_point start);

  const std::unique_ptr<Store> store_;
  const Clock* const clock_;
  StoreMetrics* const metrics_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_MEASURED_STORE_H_
