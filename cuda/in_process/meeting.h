// Where the ranks of a block meet for one collective after another.
#ifndef SKRULL_CUDA_IN_PROCESS_MEETING_H_
#define SKRULL_CUDA_IN_PROCESS_MEETING_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/device.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// What a rank brings to a meeting.
struct Contribution {
  std::string what;  // the call and its sizes: all ranks must bring the same
  const void* send = nullptr;
  void* recv = nullptr;
  Stream stream = {};
};

// Each rank calls Enter, looks at what the others brought, and calls Leave; all
// as often. Between the two, every rank's `send` stays as it is, and its owner
// does not come back from Leave. A failure, once set in the `failure` that
// several meetings share, ends all of them: both calls return it.
//
// Thread-safe; one thread at a time for each rank.
class Meeting {
 public:
  // `first_rank` and the meeting's place say who is missing. `failure` outlives
  // the meeting.
  Meeting(int32_t first_rank, int32_t size, std::chrono::nanoseconds time_limit,
          FirstFailure* failure);

  // Waits for all ranks. Errors: DEADLINE_EXCEEDED, which it sets as the
  // failure, naming the ranks that did not come.
  Status Enter(int32_t rank, Contribution contribution);

  // REQUIRES: between this rank's Enter, which was OK, and its Leave.
  const Contribution& Of(int32_t rank) const {
    return contributions_[static_cast<size_t>(rank)];
  }

  // Waits until no rank looks at this rank's contribution any more. REQUIRES:
  // this rank's Enter was OK.
  Status Leave(int32_t rank);

  // Gives up between Enter and Leave: does not wait, and Leave must not follow.
  // The others' Leave then ends with a failure only.
  void LookAway();

  // Makes waiting ranks look at the failure.
  void Wake();

 private:
  // Waits until all ranks came here. Called with `lock` held.
  Status Await(int32_t rank, std::unique_lock<std::mutex>* lock);

  const int32_t first_rank_;
  const int32_t size_;
  const std::chrono::nanoseconds time_limit_;
  FirstFailure* const failure_;

  std::mutex mutex_;
  std::condition_variable condition_;
  // The state below is protected by mutex_; contributions_ may be read without
  // it between Enter and Leave.
  std::vector<Contribution> contributions_;
  std::vector<bool> arrived_;
  int32_t arrived_count_ = 0;
  int64_t phase_ = 0;    // how often all have arrived
  int32_t looking_ = 0;  // ranks between Enter and Leave, once all have entered
};

// One rank's visit to a meeting, which ends with the scope: a rank that throws
// while it looks does not keep the others.
class Visit {
 public:
  Visit(Meeting* meeting, int32_t rank) : meeting_(meeting), rank_(rank) {}
  ~Visit() {
    if (inside_) meeting_->LookAway();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // As the meeting's.
  Status Enter(Contribution contribution) {
    Status status = meeting_->Enter(rank_, std::move(contribution));
    inside_ = status.ok();
    return status;
  }
  const Contribution& Of(int32_t rank) const { return meeting_->Of(rank); }
  Status Leave() {
    inside_ = false;
    return meeting_->Leave(rank_);
  }

 private:
  Meeting* const meeting_;
  const int32_t rank_;
  bool inside_ = false;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_IN_PROCESS_MEETING_H_
