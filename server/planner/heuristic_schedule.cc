#include "skrull/planner/heuristic_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {

void GroupSchedule::Add(const Placement& placement) {
  if (!overflow_ && !placement.IsLegal()) {
    const int32_t fullest = placement.FullestRank();
    overflow_ = {.micro_batch = size(),
                 .rank = first_rank_ + fullest,
                 .load = placement.load(fullest),
                 .gathered = placement.sharded_tokens()};
  }
  micro_batches_.push_back(placement.Export(first_rank_));
  roll_back_count_ += placement.roll_back_count();
}

void GroupSchedule::MoveTo(int32_t dp_rank, PoolSchedule& pool,
                           HeuristicSchedule& schedule) {
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t at =
        pool.Append(dp_rank, std::move(micro_batches_[static_cast<size_t>(i)]));
    if (overflow_ && overflow_->micro_batch == i &&
        (!schedule.overflow || at < schedule.overflow->micro_batch)) {
      schedule.overflow = overflow_;
      schedule.overflow->micro_batch = at;
    }
  }
  schedule.roll_back_count += std::exchange(roll_back_count_, 0);
  micro_batches_.clear();
  overflow_.reset();
}

absl::Status SimulatedOutOfMemory(const Job& job, Policy policy,
                                  const MemoryOverflow& overflow) {
  const std::string too_much =
      overflow.load > job.bucket_size()
          ? absl::StrCat("holds ", overflow.load,
                         " tokens, more than bucket_size_tokens ",
                         job.bucket_size())
          : absl::StrCat("holds ", overflow.load,
                         " tokens and gathers the K/V of ", overflow.gathered,
                         ", more than its budget of ", job.byte_budget(),
                         " bytes");
  return MakeError(
      {.reason = ErrorReason::kSimulatedOom,
       .field = "heuristic.roll_back",
       .limit = job.bucket_size()},
      absl::StrCat("heuristic.roll_back: ", PolicyName(policy),
                   " without roll-back runs out of memory (simulated): in "
                   "micro-batch ",
                   overflow.micro_batch, " rank ", overflow.rank, " ", too_much,
                   "; with roll-back the batch is planned"));
}

}  // namespace skrull
