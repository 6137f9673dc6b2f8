// Every small instance against brute force: K <= 6, N <= 3, small C, ws <= 2.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/lower_bound.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/tests/planner/brute_force.h"
#include "skrull/tests/planner/naive_checker.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::BestGroupSeconds;
using testing::MakeJob;
using testing::NaiveContract;
using testing::UnitSpec;

// Every ascending list of 1 to `most` lengths in 1 .. `longest`.
void ForEachMultiset(
    int64_t longest, size_t most,
    const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> lengths;
  const std::function<void(int64_t)> extend = [&](int64_t least) {
    if (!lengths.empty()) visit(lengths);
    if (lengths.size() == most) return;
    for (int64_t s = least; s <= longest; ++s) {
      lengths.push_back(s);
      extend(s);
      lengths.pop_back();
    }
  };
  extend(1);
}

// "" or what is wrong with the planner's answer. `optimum` is +inf where it was
// not computed.
std::string Problem(const Job& job, const NaiveContract& contract,
                    const std::vector<int64_t>& lengths, Policy policy,
                    double optimum) {
  const absl::StatusOr<Plan> plan =
      MakePlan(job, lengths, {.key = {}, .policy = policy});
  const bool feasible =
      std::all_of(lengths.begin(), lengths.end(),
                  [&](int64_t s) { return contract.IsPlaceable(s); });
  if (!feasible) {
    return plan.status().code() == absl::StatusCode::kFailedPrecondition
               ? ""
               : "not refused: " + plan.status().ToString();
  }
  if (!plan.ok()) return plan.status().ToString();
  const absl::Status checked = CheckPlan(job, lengths, *plan);
  if (!checked.ok()) return checked.ToString();
  std::string naive = contract.Problem(lengths, *plan);
  if (!naive.empty()) return naive;
  if (plan->micro_batches.size() > lengths.size()) return "too many";
  for (const MicroBatchPlan& mb : plan->micro_batches) {
    if (mb.placements.empty()) return "a micro-batch is empty";
  }
  const int64_t tokens =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const bool fits_one_group = tokens <= job.bucket_size() * job.pool().cp_size;
  const bool capped = job.max_sequences_per_micro_batch() <
                      static_cast<int64_t>(lengths.size());
  if (job.pool().dp_size == 1 && !job.models_gather() && !capped) {
    if (fits_one_group && policy != Policy::kStaticCp &&
        policy != Policy::kSorted && plan->micro_batches.size() != 1) {
      return "several micro-batches where one is enough";
    }
    if (!fits_one_group && plan->micro_batches.size() == 1) return "one?";
  }
  if (optimum < testing::kNoPlan) {
    if (plan->summary.predicted_seconds < optimum * (1 - 1e-9)) {
      return "faster than the optimum";
    }
    if (plan->summary.lower_bound_seconds > optimum * (1 + 1e-9)) {
      return "the lower bound is above the optimum";
    }
  }
  return "";
}

void CheckAll(const JobSpec& spec, const std::vector<int64_t>& lengths,
              const Job& job, const NaiveContract& contract, double optimum) {
  for (const Policy policy : AllPolicies()) {
    // It places no sequences on blocks: chunk_flow_test.cc.
    if (policy == Policy::kChunkFlow) continue;
    const std::string problem =
        Problem(job, contract, lengths, policy, optimum);
    if (!problem.empty()) {
      FAIL(problem << "\n"
                   << PolicyName(policy) << " " << testing::ToText(lengths)
                   << testing::ToText(spec));
    }
  }
}

JobSpec SmallSpec(int32_t dp_size, int32_t cp_size, int64_t bucket_size) {
  JobSpec spec = UnitSpec(dp_size, cp_size, bucket_size);
  spec.cost.seconds_per_micro_batch = 50;
  spec.cost.intra_node = {10, 1, {}};
  return spec;
}

TEST_CASE("Exhaustive: every small batch on one group or two",
          "[planner][exhaustive]") {
  int64_t instances = 0;
  int64_t solved = 0;
  for (int32_t dp = 1; dp <= 2; ++dp) {
    for (int32_t cp = 1; cp <= 3; ++cp) {
      for (int64_t bucket = 1; bucket <= 4; ++bucket) {
        JobSpec spec = SmallSpec(dp, cp, bucket);
        spec.parallelism.uniform_micro_batch_count = bucket % 2 == 0;
        const Job job = MakeJob(spec);
        const NaiveContract contract(spec);
        ForEachMultiset(
            bucket * cp + 1, 6, [&](const std::vector<int64_t>& ascending) {
              std::vector<int64_t> lengths = ascending;
              // Another order each time, the same in every run.
              std::rotate(lengths.begin(),
                          lengths.begin() +
                              instances % static_cast<int64_t>(lengths.size()),
                          lengths.end());
              ++instances;
              double optimum = testing::kNoPlan;
              if (lengths.size() <= 4 || instances % 53 == 0) {
                ++solved;
                optimum = BestGroupSeconds(spec, lengths);
              }
              CheckAll(spec, lengths, job, contract, optimum);
            });
      }
    }
  }
  // A table that shrank by mistake would pass unseen otherwise.
  CHECK(instances > 50000);
  CHECK(solved > 5000);
}

TEST_CASE("Exhaustive: small batches with gathered K/V",
          "[planner][exhaustive]") {
  for (const double gather : {0.25, 0.5, 1.0, 4.0}) {
    for (int32_t cp = 1; cp <= 3; ++cp) {
      for (int64_t bucket = 2; bucket <= 6; bucket += 2) {
        JobSpec spec = SmallSpec(1, cp, bucket);
        spec.memory.bytes_per_token = 1;
        spec.memory.gather_bytes_per_token = gather;
        const Job job = MakeJob(spec);
        const NaiveContract contract(spec);
        int64_t instances = 0;
        ForEachMultiset(job.longest_sequence() + 1, 4,
                        [&](const std::vector<int64_t>& lengths) {
                          const bool solve = ++instances % 7 == 0;
                          CheckAll(spec, lengths, job, contract,
                                   solve ? BestGroupSeconds(spec, lengths)
                                         : testing::kNoPlan);
                        });
      }
    }
  }
}

TEST_CASE("Exhaustive: small batches with a sequence cap",
          "[planner][exhaustive]") {
  for (const int64_t cap : {1, 2, 3}) {
    for (int32_t dp = 1; dp <= 2; ++dp) {
      for (int32_t cp = 1; cp <= 2; ++cp) {
        JobSpec spec = SmallSpec(dp, cp, 4);
        spec.memory.max_sequences_per_micro_batch = cap;
        const Job job = MakeJob(spec);
        const NaiveContract contract(spec);
        ForEachMultiset(
            int64_t{4} * cp, 5, [&](const std::vector<int64_t>& lengths) {
              for (const Policy policy : AllPolicies()) {
                if (policy == Policy::kChunkFlow) continue;
                const Plan plan = testing::MustPlan(job, lengths, policy);
                const std::string problem = contract.Problem(lengths, plan);
                if (!problem.empty() || !CheckPlan(job, lengths, plan).ok()) {
                  FAIL(problem << CheckPlan(job, lengths, plan) << "\n"
                               << PolicyName(policy) << " "
                               << testing::ToText(lengths)
                               << testing::ToText(spec));
                }
              }
            });
      }
    }
  }
}

TEST_CASE("Exhaustive: the lower bound is below every optimum",
          "[planner][exhaustive]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int solved = 0;
  while (solved < 300) {
    JobSpec spec = testing::RandomSpec(random);
    spec.parallelism.dp_size = static_cast<int32_t>(random.Between(1, 3));
    spec.parallelism.cp_size = static_cast<int32_t>(random.Between(1, 3));
    const NaiveContract contract(spec);
    const absl::StatusOr<Job> job = Job::Create(spec);
    if (!job.ok() || contract.blocks().size() > 12) continue;
    ++solved;
    const std::vector<int64_t> lengths =
        testing::RandomLengths(random, *job, 3);
    const double optimum = testing::BestSeconds(spec, lengths);
    CheckAll(spec, lengths, *job, contract, optimum);
    const CostModel cost(*job);
    const double bound = ComputeLowerBound(*job, cost, lengths).seconds;
    CAPTURE(bound, optimum, testing::ToText(lengths), testing::ToText(spec));
    REQUIRE(optimum < testing::kNoPlan);
    REQUIRE(bound <= optimum * (1 + 1e-9));
    const auto rises = [](const LinkCost& link) {
      return std::is_sorted(
          link.table.begin(), link.table.end(),
          [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    };
    if (rises(spec.cost.intra_node) &&
        (!spec.cost.inter_node || rises(*spec.cost.inter_node))) {
      REQUIRE(bound >= contract.ContractLowerBound(lengths) * (1 - 1e-9));
    }
  }
}

}  // namespace
}  // namespace skrull
