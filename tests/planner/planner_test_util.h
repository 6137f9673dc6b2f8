// Jobs and batches for the planner's tests.
#ifndef SKRULL_TESTS_PLANNER_PLANNER_TEST_UTIL_H_
#define SKRULL_TESTS_PLANNER_PLANNER_TEST_UTIL_H_

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::testing {

// A job of the smallest model there is: h = h_kv = 1 and one layer, so that
// linear(S) = 24 S and attention(S) = 4 S^2 FLOPs at one pass; seconds_per_flop
// 1, no overhead, free links.
JobSpec UnitSpec(int32_t dp_size, int32_t cp_size, int64_t bucket_size);

// The paper's 0.5B job, as deploy/examples/jobs/qwen2.5-0.5b.textproto.
JobSpec PaperSpec();

// Job::Create; throws std::runtime_error with the status if it fails.
Job MakeJob(const JobSpec& spec);

// MakePlan for the policy (unset: the job's); throws if it fails.
Plan MustPlan(const Job& job, std::span<const int64_t> lengths,
              std::optional<Policy> policy = std::nullopt);

// A reader of one generator; copy nothing, pass by reference.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Uniform in [low, high]. REQUIRES: low <= high.
  int64_t Between(int64_t low, int64_t high);
  // True with probability `p`.
  bool Chance(double p);
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return *(values.begin() +
             Between(0, static_cast<int64_t>(values.size()) - 1));
  }

 private:
  std::mt19937_64 engine_;
};

// A valid spec with every field varied: pools up to 6 x 12, all scopes and
// formulas, gather, caps, tables, node tiers.
JobSpec RandomSpec(Random& random);

// 1 to `most` lengths that the job can place, around what a rank, a group and
// the largest block hold.
std::vector<int64_t> RandomLengths(Random& random, const Job& job,
                                   int64_t most);

// "[1,2,3]".
std::string ToText(std::span<const int64_t> lengths);

// Every field that differs from a default-constructed spec's, for failure
// messages.
std::string ToText(const JobSpec& spec);

// The plan in readable form, a line a placement: what goldens hold.
std::string ToText(const Plan& plan);

// The lengths of each micro-batch, in placement order.
std::vector<std::vector<int64_t>> MicroBatchLengths(const Plan& plan);

// Rows of each rank in the micro-batch, by RankSegments().
std::vector<int64_t> RankLoads(const Job& job,
                               const MicroBatchPlan& micro_batch);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_PLANNER_PLANNER_TEST_UTIL_H_
