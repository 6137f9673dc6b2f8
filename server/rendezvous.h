// The calls of ranks that wait for each other, and for the bytes of rank 0.
//
// A meeting is the ranks of one life of a job that came for one key. It exists
// while a rank waits in it and ends in one of these ways, for all of its ranks
// alike: all are there, and each gets rank 0's offer; the first of them runs
// out of time; its job ends; the daemon drains. Nothing remains of a meeting
// that ended, so that the same key can be used again.
//
// A rank whose caller went away has left the meeting, which goes on: it may
// come back. So a rank whose answer was lost waits for a next meeting, into
// which the others come once they miss it.
//
// A call that waits occupies no thread: it is a callback in a table.
#ifndef SKRULL_SERVER_RENDEZVOUS_H_
#define SKRULL_SERVER_RENDEZVOUS_H_

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/alarm.h"
#include "skrull/server/clock.h"
#include "skrull/server/job_directory.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"

namespace skrull {

// Most bytes of an offer.
inline constexpr int64_t kMaxOfferBytes = 4096;

// One rank's call. Shared by the table and the call's own cancellation.
class RendezvousCall {
 public:
  struct Terms {
    std::string key;
    int32_t size = 1;
    int32_t rank = 0;   // 0 .. size - 1
    std::string offer;  // rank 0's alone
  };
  // The offer of rank 0.
  using Answer = absl::StatusOr<std::shared_ptr<const std::string>>;

  // `done` is called once, on any thread, with no lock held.
  RendezvousCall(std::shared_ptr<const RegisteredJob> job, Terms terms,
                 std::chrono::steady_clock::time_point deadline,
                 std::function<void(const Answer&)> done)
      : job_(std::move(job)),
        terms_(std::move(terms)),
        deadline_(deadline),
        done_(std::move(done)) {}

 private:
  friend class Rendezvous;

  const std::shared_ptr<const RegisteredJob> job_;
  const Terms terms_;
  const std::chrono::steady_clock::time_point deadline_;
  const std::function<void(const Answer&)> done_;
  std::atomic<bool> cancelled_ = false;
};

// Thread-safe.
class Rendezvous {
 public:
  struct Limits {
    int64_t max_waits = 65536;
    int64_t max_meetings_per_job = 1024;
  };

  // Runs a task soon, on some thread, or at once.
  using Executor = std::function<void(std::function<void()>)>;

  // Starts a thread for deadlines. `executor` runs the answers of large
  // meetings. `clock` and `metrics` must outlive the object.
  Rendezvous(Limits limits, Executor executor, const Clock* clock,
             Metrics* metrics);
  // REQUIRES: Drain was called, or no call waits.
  ~Rendezvous() = default;

  // Has the call wait, or answers it at once: its meeting is complete, or it
  // cannot wait (its job ended, it was cancelled, kRendezvousConflict,
  // kLimitExceeded, kDraining). A call of the same rank that waits is answered
  // with kCancelled.
  void Join(const std::shared_ptr<RendezvousCall>& call)
      SKRULL_EXCLUDES(mutex_);

  // Answers the call with kCancelled if it waits, now or later.
  void Cancel(const std::shared_ptr<RendezvousCall>& call)
      SKRULL_EXCLUDES(mutex_);

  // Ends the meetings of a job that has ended with why it did. REQUIRES:
  // !job.ended().ok().
  void EndJob(const RegisteredJob& job) SKRULL_EXCLUDES(mutex_);

  // Answers all waiting calls, and those to come, with kDraining.
  void Drain() SKRULL_EXCLUDES(mutex_);

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Calls = std::vector<std::shared_ptr<RendezvousCall>>;

  struct Key {
    uint64_t job_id = 0;
    std::string name;

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Deadlines = std::multimap<Time, Key>;
  struct Seat {
    std::shared_ptr<RendezvousCall> call;
    Deadlines::iterator deadline;
  };
  // Invariant: at least one seat, fewer than `size`.
  struct Meeting {
    int32_t size = 1;
    std::map<int32_t, Seat> seats;  // by rank
  };
  using Meetings = std::map<Key, Meeting>;

  static Key KeyOf(const RendezvousCall& call) {
    return {call.job_->id(), call.terms_.key};
  }

  // Why the call cannot take its seat now, or OK.
  absl::Status Check(const RendezvousCall& call) SKRULL_REQUIRES(mutex_);
  // Takes the meeting, or one seat of it, out of all tables.
  Calls TakeAll(Meetings::iterator meeting) SKRULL_REQUIRES(mutex_);
  std::shared_ptr<RendezvousCall> TakeSeat(Meetings::iterator meeting,
                                           int32_t rank)
      SKRULL_REQUIRES(mutex_);
  void AnswerAll(Calls calls, const RendezvousCall::Answer& answer)
      SKRULL_EXCLUDES(mutex_);
  // Answers the calls whose deadline has come; when the next one comes.
  Alarm::Time Expire(Alarm::Time now) SKRULL_EXCLUDES(mutex_);
  static absl::Status DeadlineError(const Key& key, const Meeting& meeting);

  const Limits limits_;
  const Executor executor_;
  Metrics* const metrics_;

  Mutex mutex_;
  bool draining_ SKRULL_GUARDED_BY(mutex_) = false;
  Meetings meetings_ SKRULL_GUARDED_BY(mutex_);
  std::map<uint64_t, int64_t> meetings_of_job_ SKRULL_GUARDED_BY(mutex_);
  // One entry for each seat of all meetings.
  Deadlines deadlines_ SKRULL_GUARDED_BY(mutex_);

  Alarm alarm_;  // last: it uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_RENDEZVOUS_H_
