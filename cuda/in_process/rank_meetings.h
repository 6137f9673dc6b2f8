// Where the ranks of one process meet: for collectives of blocks, for
// announcements and agreements, and for their common end. What pools of ranks
// in one process share; they bring the communicators.
#ifndef SKRULL_CUDA_IN_PROCESS_RANK_MEETINGS_H_
#define SKRULL_CUDA_IN_PROCESS_RANK_MEETINGS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/in_process/meeting.h"
#include "skrull/planner/layout.h"

namespace skrull::exec::internal {

// One failure ends all: every waiting and every later meeting of every rank
// returns it. Thread-safe; one thread at a time for each rank of a meeting.
class RankMeetings {
 public:
  // REQUIRES: ranks >= 1.
  RankMeetings(int32_t ranks, std::chrono::nanoseconds time_limit);
  RankMeetings(const RankMeetings&) = delete;
  RankMeetings& operator=(const RankMeetings&) = delete;

  int32_t size() const { return size_; }
  Status Poll() const { return failure_.Get(); }
  // Ends all by a failure, or by one that rank `rank` has.
  void Fail(const Status& status);
  void AbortBy(int32_t rank, const Status& cause);

  // Made when it is first asked for; lives as long as this.
  Meeting* Of(Block block);

  // Enters a block's meeting for a collective and compares what the ranks
  // brought. OK: the visit goes on. Errors: DEADLINE_EXCEEDED naming who did
  // not come; COMM_FAILED if they brought different things; both end all.
  Status EnterCollective(Visit* visit, Block block, Contribution contribution);

  // All ranks, outside streams. Errors: FAILED_PRECONDITION on every rank if
  // they brought different things, which ends nothing; DEADLINE_EXCEEDED, which
  // ends all.
  Status MeetAll(int32_t rank, std::string what);

 private:
  Status Compare(Visit* visit, Block block, Contribution contribution);

  const int32_t size_;
  const std::chrono::nanoseconds time_limit_;
  FirstFailure failure_;
  Meeting control_;  // of all ranks
  std::mutex mutex_;
  std::map<Block, std::unique_ptr<Meeting>> meetings_;  // protected by mutex_
};

// What one rank of such a pool holds. As communicator.h says.
class RankSet final : public CommunicatorSet, public StepAgreement {
 public:
  // Makes this rank's end of a block; `rank` is that in the block.
  using NewCommunicator =
      std::function<Result<std::unique_ptr<Communicator>>(Block, int32_t rank)>;

  // `meetings` outlives it.
  RankSet(RankMeetings* meetings, int32_t rank, NewCommunicator create)
      : meetings_(meetings), rank_(rank), create_(std::move(create)) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return meetings_->size(); }
  // Errors: INVALID_ARGUMENT for ranks that the pool does not have; those of
  // MeetAll and of `create`.
  Status Announce(std::span<const Block> blocks) override;
  Result<Communicator*> Find(Block block) override;
  Status Poll() override { return meetings_->Poll(); }
  void Abort(const Status& cause) noexcept override {
    meetings_->AbortBy(rank_, cause);
  }
  Status Agree(std::string_view digest) override {
    return meetings_->MeetAll(rank_, "plan " + std::string(digest));
  }

 private:
  RankMeetings* const meetings_;
  const int32_t rank_;
  const NewCommunicator create_;
  std::map<Block, std::unique_ptr<Communicator>> communicators_;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_IN_PROCESS_RANK_MEETINGS_H_
