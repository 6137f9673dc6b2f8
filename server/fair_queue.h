// Batches that wait for a planning thread, in an order that is fair to shares.
//
// A share is whoever has a turn of its own: a job. Each is accounted the time
// that its batches took; the next batch is the oldest one of the share with the
// least, and of equal shares, of the one that was served longest ago. (This is
// start-time fair queueing. Deficit round robin gives the same guarantees with
// a quantum to tune and rounds to spin through when batches are much larger
// than it.) A share that had nothing waiting joins at the level of the one
// served last, so that idling saves up no turns.
//
// What that promises, however much others send, with N other shares waiting:
//  - the first batch of a share that is not ahead, such as one that had nothing
//    planned lately, is taken after at most N others, one of each share;
//  - between two shares that both keep batches waiting, the accounted times
//    differ by at most one batch of either.
//
// A batch is accounted what it is expected to take when it is taken, and what
// it took when it is done: see Done. Pure: no clock, no lock. Not thread-safe.
#ifndef SKRULL_SERVER_FAIR_QUEUE_H_
#define SKRULL_SERVER_FAIR_QUEUE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "skrull/server/plan_flight.h"

namespace skrull {

class FairQueue {
 public:
  FairQueue() = default;
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Appends the flight to its share's batches. O(log shares).
  void Push(const std::shared_ptr<PlanFlight>& flight);

  // Takes the next flight out; nullptr if none waits. Every flight taken must
  // be given to Done. O(log shares).
  std::shared_ptr<PlanFlight> Pop();

  // Accounts what a flight that was taken has cost. `planned`: it is a sample
  // of what planning takes; false if it turned out not to be planned.
  // O(log shares).
  void Done(const PlanFlight& flight, double seconds, bool planned);

  // Takes out a flight that waits. REQUIRES: flight.queued. O(log shares).
  void Remove(const PlanFlight& flight);

  // Flights that wait, and the memory they hold.
  int64_t size() const { return size_; }
  int64_t bytes() const { return bytes_; }
  // The same of one share.
  int64_t size(const std::string& share) const;
  int64_t bytes(const std::string& share) const;

  // The share with the most flights, and that with the most bytes. REQUIRES:
  // size() > 0. O(shares).
  const std::string& LongestShare() const;
  const std::string& LargestShare() const;
  // A share's newest flight. REQUIRES: size(share) > 0.
  std::shared_ptr<PlanFlight> Newest(const std::string& share) const;

  // Expected seconds of planning such a flight, from what those of its share,
  // or else of all, took; 0 before any was done.
  double ExpectedSeconds(const PlanFlight& flight) const;

  // Expected seconds of one thread's planning that come before a flight of the
  // share that would be pushed now: the share's own, and its turns of others.
  // Batches that were taken already are not in it. O(shares).
  double SecondsAhead(const std::string& share) const;

 private:
  // Least accounted first, then served longest ago.
  using Rank = std::pair<double, uint64_t>;

  struct Share {
    std::list<std::shared_ptr<PlanFlight>> flights;  // oldest first
    int64_t bytes = 0;
    double queued_seconds = 0;  // expected, of `flights`
    double accounted = 0;
    uint64_t ticket = 0;       // rises each time it is served or joins
    int64_t running = 0;       // flights taken and not done
    double unit_seconds = -1;  // of its batches lately; negative: unknown
  };
  using Shares = std::map<std::string, Share>;

  static Rank RankOf(const Share& share) {
    return {share.accounted, share.ticket};
  }
  // Updates what follows from a share's flights and accounts, around a change.
  void Unlist(Shares::iterator share);
  void List(Shares::iterator share);
  std::shared_ptr<PlanFlight> TakeOut(
      Shares::iterator share,
      std::list<std::shared_ptr<PlanFlight>>::iterator position);
  // The waiting share for which `size` is largest.
  template <typename Size>
  const std::string& ShareWithMost(const Size& size) const;

  // Invariants, between calls:
  //  - waiting_ holds exactly the shares with flights, each at its rank, and
  //    none of them is accounted less than level_;
  //  - idle_ holds exactly those without flights, queued or running, the one
  //    that was there longest first; they are kept for what is known of them.
  Shares shares_;
  std::map<Rank, Shares::iterator> waiting_;
  std::map<uint64_t, Shares::iterator> idle_;  // by ticket
  double level_ = 0;  // accounted to the share served last, before it was
  uint64_t next_ticket_ = 1;
  double unit_seconds_ = 0;  // of all batches lately
  int64_t size_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_FAIR_QUEUE_H_
