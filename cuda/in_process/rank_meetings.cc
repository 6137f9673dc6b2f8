#include "skrull/cuda/in_process/rank_meetings.h"

#include <utility>

#include "skrull/cuda/rank_votes.h"

namespace skrull::exec::internal {
namespace {

std::string BlockName(Block block) {
  return "[" + std::to_string(block.first_rank) + ", " +
         std::to_string(block.first_rank + block.degree) + ")";
}

}  // namespace

RankMeetings::RankMeetings(int32_t ranks, std::chrono::nanoseconds time_limit)
    : size_(ranks),
      time_limit_(time_limit),
      control_(0, ranks, time_limit, &failure_) {}

void RankMeetings::Fail(const Status& status) {
  failure_.Set(status);
  control_.Wake();
  const std::lock_guard lock(mutex_);
  for (const auto& [block, meeting] : meetings_) meeting->Wake();
}

void RankMeetings::AbortBy(int32_t rank, const Status& cause) {
  Fail({StatusCode::kAborted,
        "rank " + std::to_string(rank) + ": " + cause.ToString()});
}

Meeting* RankMeetings::Of(Block block) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Meeting>& meeting = meetings_[block];
  if (meeting == nullptr) {
    meeting = std::make_unique<Meeting>(block.first_rank, block.degree,
                                        time_limit_, &failure_);
  }
  return meeting.get();
}

Status RankMeetings::EnterCollective(Visit* visit, Block block,
                                     Contribution contribution) {
  const Status met = Compare(visit, block, std::move(contribution));
  if (met.code() == StatusCode::kFailedPrecondition) {
    Fail({StatusCode::kCommFailed, met.message()});
  }
  return met.ok() ? met : Poll();
}

Status RankMeetings::MeetAll(int32_t rank, std::string what) {
  Visit visit(&control_, rank);
  SKRULL_EXEC_RETURN_IF_ERROR(
      Compare(&visit, {0, size_}, {.what = std::move(what)}));
  return visit.Leave();
}

Status RankMeetings::Compare(Visit* visit, Block block,
                             Contribution contribution) {
  if (Status entered = visit->Enter(std::move(contribution)); !entered.ok()) {
    // A time-out has to release the ranks that wait elsewhere.
    Fail(entered);
    return entered;
  }
  std::vector<std::string> brought;
  for (int32_t r = 0; r < block.degree; ++r) {
    brought.push_back(visit->Of(r).what);
  }
  std::string message = DescribeDifference(block.first_rank, brought);
  if (message.empty()) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(visit->Leave());
  return {StatusCode::kFailedPrecondition, std::move(message)};
}

Status RankSet::Announce(std::span<const Block> blocks) {
  std::string what = "blocks";
  for (const Block& block : blocks) {
    if (block.first_rank < 0 || block.degree < 1 ||
        int64_t{block.first_rank} + block.degree > size()) {
      return InvalidArgument("ranks " + BlockName(block) +
                             " are not all among the pool's " +
                             std::to_string(size()));
    }
    what += " " + BlockName(block);
  }
  SKRULL_EXEC_RETURN_IF_ERROR(meetings_->MeetAll(rank_, std::move(what)));
  for (const Block& block : blocks) {
    const int32_t rank = rank_ - block.first_rank;
    if (rank < 0 || rank >= block.degree || communicators_.contains(block)) {
      continue;
    }
    Result<std::unique_ptr<Communicator>> made = create_(block, rank);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    communicators_[block] = *std::move(made);
  }
  return {};
}

Result<Communicator*> RankSet::Find(Block block) {
  const auto found = communicators_.find(block);
  if (found == communicators_.end()) {
    return Status(StatusCode::kNotFound, "rank " + std::to_string(rank_) +
                                             " has no communicator of ranks " +
                                             BlockName(block));
  }
  return found->second.get();
}

}  // namespace skrull::exec::internal
