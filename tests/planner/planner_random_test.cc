// Random jobs and batches: every plan passes the checker, which knows no
// policy, and a sample of them the naive contract, which knows no checker.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::NaiveContract;
using testing::Random;

constexpr int kJobs = 4000;
constexpr int kBatchesOfJob = 25;

// "" or what is wrong with the policy's plan.
std::string Problem(const Job& job, const NaiveContract* contract,
                    const std::vector<int64_t>& lengths, Policy policy) {
  const absl::StatusOr<Plan> plan =
      MakePlan(job, lengths, {.key = {}, .policy = policy});
  if (!plan.ok()) return plan.status().ToString();
  if (plan->policy != policy) return "the plan names another policy";
  const absl::Status checked = CheckPlan(job, lengths, *plan);
  if (!checked.ok()) return checked.ToString();
  if (plan->summary.lower_bound_seconds >
      plan->summary.predicted_seconds * (1 + 1e-9)) {
    return "the lower bound is above the plan";
  }
  for (const MicroBatchPlan& mb : plan->micro_batches) {
    if (mb.placements.empty()) return "a micro-batch is empty";
  }
  return contract == nullptr ? "" : contract->Problem(lengths, *plan);
}

TEST_CASE("Planner: 100,000 random batches are legal", "[planner][random]") {
  CAPTURE(Catch::rngSeed());
  Random random(Catch::rngSeed());
  for (int j = 0; j < kJobs; ++j) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const NaiveContract contract(spec);
    for (int b = 0; b < kBatchesOfJob; ++b) {
      const std::vector<int64_t> lengths =
          testing::RandomLengths(random, job, b == 0 ? 2000 : 100);
      const Policy policy =
          random.Pick({Policy::kSkrull, Policy::kSkrull, Policy::kStaticCp,
                       Policy::kPackedStaticCp, Policy::kDacpOnly,
                       Policy::kRoundRobin, Policy::kSorted});
      const bool naive = b % 5 == 1;
      const std::string problem =
          Problem(job, naive ? &contract : nullptr, lengths, policy);
      if (!problem.empty()) {
        FAIL(problem << "\nrun " << j << "/" << b << " " << PolicyName(policy)
                     << " " << testing::ToText(lengths)
                     << testing::ToText(spec));
      }
    }
  }
}

TEST_CASE("Planner: a batch is refused exactly when a sequence never fits",
          "[planner][random]") {
  CAPTURE(Catch::rngSeed());
  Random random(Catch::rngSeed());
  int refused = 0;
  for (int run = 0; run < 3000; ++run) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    const NaiveContract contract(spec);
    std::vector<int64_t> lengths = testing::RandomLengths(random, job, 10);
    if (random.Chance(0.7)) {
      lengths[static_cast<size_t>(
          random.Between(0, static_cast<int64_t>(lengths.size()) - 1))] =
          job.longest_sequence() + random.Between(0, 2);
    }
    bool placeable = true;
    for (const int64_t s : lengths) {
      placeable = placeable && contract.IsPlaceable(s);
    }
    CAPTURE(testing::ToText(lengths), testing::ToText(spec));
    const absl::StatusOr<Plan> plan = MakePlan(job, lengths, {});
    REQUIRE(plan.ok() == placeable);
    REQUIRE(CheckBatch(job, lengths) == plan.status());
    if (!placeable) {
      ++refused;
      REQUIRE(plan.status().code() == absl::StatusCode::kFailedPrecondition);
    }
  }
  CHECK(refused > 500);
}

}  // namespace
}  // namespace skrull
