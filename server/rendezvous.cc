#include "skrull/server/rendezvous.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

// Calls that one task answers.
constexpr size_t kAnswersPerTask = 64;

absl::Status DrainingError() {
  return MakeError({.reason = ErrorReason::kDraining},
                   "the daemon is shutting down");
}

absl::Status GoneError() {
  return MakeError({.reason = ErrorReason::kCancelled}, "the caller went away");
}

absl::Status ConflictError(const std::string& field,
                           const std::string& message) {
  return MakeError({.reason = ErrorReason::kRendezvousConflict, .field = field},
                   absl::StrCat(field, ": ", message));
}

}  // namespace

Rendezvous::Rendezvous(Limits limits, Executor executor, const Clock* clock,
                       Metrics* metrics)
    : limits_(limits),
      executor_(std::move(executor)),
      metrics_(metrics),
      alarm_(clock, [this](Alarm::Time now) { return Expire(now); }) {}

void Rendezvous::Join(const std::shared_ptr<RendezvousCall>& call) {
  const int32_t rank = call->terms_.rank;
  std::shared_ptr<RendezvousCall> replaced;
  Calls complete;
  std::shared_ptr<const std::string> offer;
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    refused = Check(*call);
    if (refused.ok()) {
      const auto [meeting, is_new] = meetings_.try_emplace(KeyOf(*call));
      Meeting& m = meeting->second;
      if (is_new) {
        m.size = call->terms_.size;
        ++meetings_of_job_[call->job_->id()];
      }
      const auto [seat, was_free] = m.seats.try_emplace(rank);
      if (!was_free) {
        replaced = std::move(seat->second.call);
        deadlines_.erase(seat->second.deadline);
      }
      seat->second = {call,
                      deadlines_.emplace(call->deadline_, meeting->first)};
      alarm_.Set(call->deadline_);
      if (static_cast<int32_t>(m.seats.size()) == m.size) {
        offer = std::make_shared<const std::string>(
            m.seats.begin()->second.call->terms_.offer);
        complete = TakeAll(meeting);
      }
      metrics_->SetRendezvousWaits(static_cast<int64_t>(deadlines_.size()));
    }
  }
  if (!refused.ok()) call->done_(refused);
  if (replaced != nullptr) {
    replaced->done_(MakeError({.reason = ErrorReason::kCancelled},
                              absl::StrCat("another call of rank ", rank,
                                           " took the place of this one")));
  }
  AnswerAll(std::move(complete), offer);
}

void Rendezvous::Cancel(const std::shared_ptr<RendezvousCall>& call) {
  call->cancelled_ = true;
  {
    MutexLock lock(&mutex_);
    const auto meeting = meetings_.find(KeyOf(*call));
    if (meeting == meetings_.end()) return;
    const auto seat = meeting->second.seats.find(call->terms_.rank);
    if (seat == meeting->second.seats.end() || seat->second.call != call) {
      return;
    }
    TakeSeat(meeting, call->terms_.rank);
  }
  call->done_(GoneError());
}

void Rendezvous::EndJob(const RegisteredJob& job) {
  Calls calls;
  {
    MutexLock lock(&mutex_);
    for (auto it = meetings_.lower_bound({job.id(), ""});
         it != meetings_.end() && it->first.job_id == job.id();) {
      const auto next = std::next(it);
      const Calls taken = TakeAll(it);
      calls.insert(calls.end(), taken.begin(), taken.end());
      it = next;
    }
  }
  AnswerAll(std::move(calls), job.ended());
}

void Rendezvous::Drain() {
  Calls calls;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    while (!meetings_.empty()) {
      const Calls taken = TakeAll(meetings_.begin());
      calls.insert(calls.end(), taken.begin(), taken.end());
    }
  }
  for (const auto& call : calls) call->done_(DrainingError());
}

absl::Status Rendezvous::Check(const RendezvousCall& call) {
  const RendezvousCall::Terms& terms = call.terms_;
  if (call.cancelled_) return GoneError();
  if (draining_) return DrainingError();
  if (absl::Status ended = call.job_->ended(); !ended.ok()) return ended;

  const auto meeting = meetings_.find(KeyOf(call));
  if (meeting != meetings_.end()) {
    const Meeting& m = meeting->second;
    if (m.size != terms.size) {
      return ConflictError(
          "size",
          absl::StrCat("is ", terms.size, ", but rank ", m.seats.begin()->first,
                       " waits at ", terms.key, " for ", m.size, " ranks"));
    }
    const auto seat = m.seats.find(terms.rank);
    if (seat != m.seats.end()) {
      if (seat->second.call->terms_.offer != terms.offer) {
        return ConflictError("offer",
                             absl::StrCat("another call of rank 0 "
                                          "waits at ",
                                          terms.key, " with another offer"));
      }
      return absl::OkStatus();  // takes an existing seat
    }
  } else {
    const auto open = meetings_of_job_.find(call.job_->id());
    if (open != meetings_of_job_.end() &&
        open->second >= limits_.max_meetings_per_job) {
      return MakeError({.reason = ErrorReason::kLimitExceeded,
                        .field = "key",
                        .limit = limits_.max_meetings_per_job,
                        .retry_after_seconds = 1},
                       absl::StrCat("ranks of this job wait at ", open->second,
                                    " keys already"));
    }
  }
  if (static_cast<int64_t>(deadlines_.size()) >= limits_.max_waits) {
    return MakeError(
        {.reason = ErrorReason::kLimitExceeded,
         .limit = limits_.max_waits,
         .retry_after_seconds = 1},
        absl::StrCat(limits_.max_waits, " calls wait for other ranks already"));
  }
  return absl::OkStatus();
}

Rendezvous::Calls Rendezvous::TakeAll(Meetings::iterator meeting) {
  Calls calls;
  size_t left = meeting->second.seats.size();
  calls.reserve(left);
  for (; left > 0; --left) {
    calls.push_back(TakeSeat(meeting, meeting->second.seats.begin()->first));
  }
  return calls;
}

std::shared_ptr<RendezvousCall> Rendezvous::TakeSeat(Meetings::iterator meeting,
                                                     int32_t rank) {
  std::map<int32_t, Seat>& seats = meeting->second.seats;
  const auto seat = seats.find(rank);
  std::shared_ptr<RendezvousCall> call = std::move(seat->second.call);
  deadlines_.erase(seat->second.deadline);
  seats.erase(seat);
  if (seats.empty()) {
    const auto open = meetings_of_job_.find(meeting->first.job_id);
    if (--open->second == 0) meetings_of_job_.erase(open);
    meetings_.erase(meeting);
  }
  metrics_->SetRendezvousWaits(static_cast<int64_t>(deadlines_.size()));
  return call;
}

void Rendezvous::AnswerAll(Calls calls, const RendezvousCall::Answer& answer) {
  if (calls.size() <= kAnswersPerTask) {
    for (const auto& call : calls) call->done_(answer);
    return;
  }
  for (size_t begin = 0; begin < calls.size(); begin += kAnswersPerTask) {
    const size_t end = std::min(calls.size(), begin + kAnswersPerTask);
    Calls part(calls.begin() + static_cast<ptrdiff_t>(begin),
               calls.begin() + static_cast<ptrdiff_t>(end));
    executor_([part = std::move(part), answer] {
      for (const auto& call : part) call->done_(answer);
    });
  }
}

Alarm::Time Rendezvous::Expire(Alarm::Time now) {
  while (true) {
    Calls expired;
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (deadlines_.empty()) return Alarm::kNever;
      if (deadlines_.begin()->first > now) return deadlines_.begin()->first;
      const auto meeting = meetings_.find(deadlines_.begin()->second);
      status = DeadlineError(meeting->first, meeting->second);
      expired = TakeAll(meeting);
    }
    AnswerAll(std::move(expired), status);
  }
}

absl::Status Rendezvous::DeadlineError(const Key& key, const Meeting& meeting) {
  ErrorDetail detail{.reason = ErrorReason::kDeadlineExceeded};
  const int64_t missing = meeting.size - std::ssize(meeting.seats);
  for (int32_t rank = 0; rank < meeting.size; ++rank) {
    if (std::ssize(detail.indices) == ErrorDetail::kMaxIndices) break;
    if (!meeting.seats.contains(rank)) detail.indices.push_back(rank);
  }
  return MakeError(
      detail,
      absl::StrCat("at ", key.name, ", ", missing, " of ", meeting.size,
                   " ranks did not come before the first deadline: "
                   "rank ",
                   absl::StrJoin(detail.indices, ", "),
                   missing > std::ssize(detail.indices) ? ", ..." : ""));
}

}  // namespace skrull
