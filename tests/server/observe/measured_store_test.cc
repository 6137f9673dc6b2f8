#include "skrull/server/measured_store.h"

#include <catch2/catch.hpp>
#include <map>

#include "prometheus/registry.h"
#include "skrull/planner/error.h"
#include "skrull/server/memory_store.h"
#include "skrull/tests/server/observe/manual_clock.h"

namespace skrull {
namespace {

using testing::ManualClock;

// A store in memory whose disk is full, for Count, and which takes a second to
// say so.
class BrokenStore : public MeasuredStore {
 public:
  BrokenStore(ManualClock* clock, StoreMetrics* unused)
      : MeasuredStore(std::make_unique<MemoryStore>(), clock, unused),
        clock_(clock) {}

  absl::StatusOr<int64_t> Count() override {
    clock_->Advance(std::chrono::seconds(1));
    return MakeError({.reason = ErrorReason::kStoreFailed}, "disk full");
  }

 private:
  ManualClock* const clock_;
};

JobRecord Wanted(int64_t hidden_size) {
  JobRecord record;
  record.name = "run7";
  record.spec.mutable_model()->set_hidden_size(hidden_size);
  return record;
}

// "operation outcome" -> count, of those that happened.
std::map<std::string, double> Counts(const prometheus::Registry& registry) {
  std::map<std::string, double> counts;
  for (const auto& family : registry.Collect()) {
    for (const auto& metric : family.metric) {
      if (family.name == "skrull_store_operations_total" &&
          metric.counter.value > 0) {
        counts[metric.label[0].value + " " + metric.label[1].value] =
            metric.counter.value;
      }
      if (family.name == "skrull_store_seconds" &&
          metric.histogram.sample_sum > 0) {
        counts[metric.label[0].value + " seconds"] =
            metric.histogram.sample_sum;
      }
      if (family.name == "skrull_store_last_failure_timestamp_seconds") {
        counts["last failure"] = metric.gauge.value;
      }
    }
  }
  return counts;
}

TEST_CASE("MeasuredStore: does what the store does, and counts how it ended",
          "[server][metrics]") {
  ManualClock clock;
  prometheus::Registry registry;
  StoreMetrics metrics(registry);
  prometheus::Registry unused_registry;
  StoreMetrics unused(unused_registry);
  MeasuredStore store(std::make_unique<BrokenStore>(&clock, &unused), &clock,
                      &metrics);
  CHECK(store.Create(Wanted(64), {}).ok());
  CHECK(store.Create(Wanted(64), {})->generation == 1);
  const absl::Status refused = store.Create(Wanted(128), {}).status();
  CHECK(GetErrorDetail(refused)->reason == ErrorReason::kJobExists);
  CHECK(store.Get("run7")->spec.model().hidden_size() == 64);
  CHECK(store.List("", 10)->size() == 1);
  v1::Calibration next;
  next.set_epoch(1);
  CHECK(store.Advance({"run7", 1}, next)->calibration.epoch() == 1);
  CHECK(store.Calibrations("run7", 1)->size() == 2);
  const PlanRecord plan{.key = {"run7", 3, 0},
                        .generation = 1,
                        .request_digest = "d",
                        .plan = "p"};
  CHECK(*store.Commit(plan, 10) == plan);
  CHECK(**store.Find(plan.key, 1) == plan);
  v1::StepReport report;
  report.set_step(3);
  CHECK(store.PutReport({"run7", 1}, report, 10).ok());
  CHECK(store.Reports(plan.key, 1, 10)->size() == 1);
  CHECK(store.LatestSteps("run7", 1, 10)->size() == 1);
  bool current = false;
  store.WhenCurrent([&](const absl::Status& status) { current = status.ok(); });
  CHECK(current);
  CHECK(store.Delete({"run7"}).ok());
  CHECK(Counts(registry) ==
        std::map<std::string, double>{{"create_job ok", 2},
                                      {"create_job refused", 1},
                                      {"get_job ok", 1},
                                      {"list_jobs ok", 1},
                                      {"advance_epoch ok", 1},
                                      {"list_epochs ok", 1},
                                      {"commit_plan ok", 1},
                                      {"find_plan ok", 1},
                                      {"put_report ok", 1},
                                      {"list_reports ok", 1},
                                      {"list_steps ok", 1},
                                      {"catch_up ok", 1},
                                      {"delete_job ok", 1},
                                      {"last failure", 0}});

  CHECK_FALSE(store.Count().ok());
  const std::map<std::string, double> counts = Counts(registry);
  CHECK(counts.at("count_jobs failed") == 1);
  CHECK(counts.at("count_jobs seconds") == 1);
  const std::chrono::duration<double> now = clock.Now().time_since_epoch();
  CHECK(counts.at("last failure") == now.count());
}

}  // namespace
}  // namespace skrull
