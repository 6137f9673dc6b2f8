// The contract once more, as plainly as it can be written: no code of the
// planner is used, nothing is fast. Tests compare the planner, the checker and
// the cost model with it.
#ifndef SKRULL_TESTS_PLANNER_NAIVE_CHECKER_H_
#define SKRULL_TESTS_PLANNER_NAIVE_CHECKER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::testing {

// What the contract says of placements, from the spec alone. REQUIRES: the spec
// is valid and sets every field of `model` that its formula needs, with
// head counts and head_dim explicit or 1.
class NaiveContract {
 public:
  explicit NaiveContract(const JobSpec& spec);

  // Every block that the scope allows, ascending.
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t bucket_size() const { return bucket_size_; }

  // True if an otherwise empty block of `degree` ranks holds the sequence.
  bool Holds(int64_t tokens, int32_t degree) const;
  // True if some allowed block does.
  bool IsPlaceable(int64_t tokens) const;

  // Rows and gathered tokens of each rank, by the rotation pointer rule.
  struct RankMemory {
    int64_t rows = 0;
    int64_t gathered = 0;
  };
  std::vector<RankMemory> Memory(
      std::span<const SequencePlacement> placements) const;
  // True if every rank and every DP rank's sequence count is within limits.
  bool Fits(std::span<const SequencePlacement> placements) const;

  // Seconds of the slowest of all ranks, without overhead.
  double SlowestRank(std::span<const SequencePlacement> placements) const;
  // predicted_seconds of the micro-batch / of the step.
  double MicroBatchSeconds(std::span<const SequencePlacement> placements) const;
  double StepSeconds(
      std::span<const std::vector<SequencePlacement>> micro_batches) const;

  // The bound the contract asks for at least, where no link table dips.
  double ContractLowerBound(std::span<const int64_t> lengths) const;

  // "" if the plan is legal and its figures are right, else what is wrong.
  // lower_bound_seconds is only held to its two limits.
  std::string Problem(std::span<const int64_t> lengths, const Plan& plan) const;

 private:
  struct Seconds {
    double linear = 0;
    double attention = 0;
  };
  Seconds Comp(int64_t tokens, int32_t degree) const;
  double Exchange(Block block, int64_t tokens) const;
  std::vector<double> RankSeconds(
      std::span<const SequencePlacement> placements) const;

  JobSpec spec_;
  int32_t ranks_;
  std::vector<Block> blocks_;
  int64_t bucket_size_ = 0;
  double budget_ = 0;
  double linear_ = 0;     // seconds a token
  double attention_ = 0;  // seconds a token squared
  double kv_bytes_ = 0;   // a token
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_PLANNER_NAIVE_CHECKER_H_
