#include "skrull/server/fair_queue.h"

#include <algorithm>
#include <iterator>

namespace skrull {
namespace {

// What a batch costs beside its lengths, in lengths: a commit to disk takes
// 0.3 ms, about as long as planning 256 lengths (docs/benchmarks.md).
constexpr int64_t kBatchUnits = 256;
// Of a new sample: what is expected follows about the last ten batches.
constexpr double kSampleWeight = 0.1;
// Idle shares that are remembered, for what they are expected to take and for
// the batch they may be ahead by. Some 200 bytes each.
constexpr size_t kMaxIdleShares = 1024;

double Units(const PlanFlight& flight) {
  return static_cast<double>(flight.lengths + kBatchUnits);
}

}  // namespace

void FairQueue::Push(const std::shared_ptr<PlanFlight>& flight) {
  const Shares::iterator it = shares_.try_emplace(flight->share).first;
  Share& share = it->second;
  flight->expected_seconds = ExpectedSeconds(*flight);
  Unlist(it);
  if (share.flights.empty()) {
    share.accounted = std::max(share.accounted, level_);
    share.ticket = next_ticket_++;
  }
  flight->position = share.flights.insert(share.flights.end(), flight);
  flight->queued = true;
  share.bytes += flight->bytes;
  share.queued_seconds += flight->expected_seconds;
  ++size_;
  bytes_ += flight->bytes;
  List(it);
}

std::shared_ptr<PlanFlight> FairQueue::Pop() {
  if (waiting_.empty()) return nullptr;
  const Shares::iterator it = waiting_.begin()->second;
  Share& share = it->second;
  Unlist(it);
  level_ = share.accounted;
  std::shared_ptr<PlanFlight> flight = TakeOut(it, share.flights.begin());
  share.accounted += flight->expected_seconds;
  share.ticket = next_ticket_++;
  ++share.running;
  List(it);
  return flight;
}

void FairQueue::Done(const PlanFlight& flight, double seconds, bool planned) {
  // It is there: a share with running flights is never forgotten.
  const Shares::iterator it = shares_.find(flight.share);
  Share& share = it->second;
  Unlist(it);
  --share.running;
  // Never below the level: a share that cost less than expected gets no turns
  // ahead of one that has just come.
  share.accounted =
      std::max(level_, share.accounted + seconds - flight.expected_seconds);
  if (planned) {
    const double sample = seconds / Units(flight);
    const auto follow = [sample](double* unit_seconds, bool known) {
      *unit_seconds =
          known ? *unit_seconds + kSampleWeight * (sample - *unit_seconds)
                : sample;
    };
    follow(&share.unit_seconds, share.unit_seconds >= 0);
    follow(&unit_seconds_, unit_seconds_ > 0);
  }
  List(it);
}

void FairQueue::Remove(const PlanFlight& flight) {
  const Shares::iterator it = shares_.find(flight.share);
  Unlist(it);
  TakeOut(it, flight.position);
  List(it);
}

int64_t FairQueue::size(const std::string& share) const {
  const auto it = shares_.find(share);
  return it == shares_.end() ? 0 : std::ssize(it->second.flights);
}

int64_t FairQueue::bytes(const std::string& share) const {
  const auto it = shares_.find(share);
  return it == shares_.end() ? 0 : it->second.bytes;
}

const std::string& FairQueue::LongestShare() const {
  return ShareWithMost(
      [](const Share& share) { return std::ssize(share.flights); });
}

const std::string& FairQueue::LargestShare() const {
  return ShareWithMost([](const Share& share) { return share.bytes; });
}

std::shared_ptr<PlanFlight> FairQueue::Newest(const std::string& share) const {
  return shares_.find(share)->second.flights.back();
}

double FairQueue::ExpectedSeconds(const PlanFlight& flight) const {
  const auto it = shares_.find(flight.share);
  const bool known = it != shares_.end() && it->second.unit_seconds >= 0;
  return Units(flight) * (known ? it->second.unit_seconds : unit_seconds_);
}

double FairQueue::SecondsAhead(const std::string& name) const {
  const auto own = shares_.find(name);
  double seconds = 0;
  double turn = level_;  // what the share is accounted when the flight's turn
                         // comes
  if (own != shares_.end()) {
    seconds = own->second.queued_seconds;
    turn = std::max(level_, own->second.accounted) + seconds;
  }
  for (const auto& [rank, it] : waiting_) {
    const Share& other = it->second;
    if (it == own) continue;
    if (other.accounted > turn) break;
    seconds += std::min(other.queued_seconds,
                        std::max(turn - other.accounted,
                                 other.flights.front()->expected_seconds));
  }
  return seconds;
}

void FairQueue::Unlist(Shares::iterator share) {
  waiting_.erase(RankOf(share->second));
  idle_.erase(share->second.ticket);
}

void FairQueue::List(Shares::iterator share) {
  if (!share->second.flights.empty()) {
    waiting_.emplace(RankOf(share->second), share);
  } else if (share->second.running == 0) {
    idle_.emplace(share->second.ticket, share);
    if (idle_.size() > kMaxIdleShares) {
      shares_.erase(idle_.begin()->second);
      idle_.erase(idle_.begin());
    }
  }
}

std::shared_ptr<PlanFlight> FairQueue::TakeOut(
    Shares::iterator share,
    std::list<std::shared_ptr<PlanFlight>>::iterator position) {
  std::shared_ptr<PlanFlight> flight = *position;
  share->second.flights.erase(position);
  flight->queued = false;
  share->second.bytes -= flight->bytes;
  share->second.queued_seconds =
      share->second.flights.empty()
          ? 0  // no sum of rounding errors
          : share->second.queued_seconds - flight->expected_seconds;
  --size_;
  bytes_ -= flight->bytes;
  return flight;
}

template <typename Size>
const std::string& FairQueue::ShareWithMost(const Size& size) const {
  const auto most = std::max_element(
      waiting_.begin(), waiting_.end(), [&size](const auto& a, const auto& b) {
        return size(a.second->second) < size(b.second->second);
      });
  return most->second->first;
}

}  // namespace skrull
