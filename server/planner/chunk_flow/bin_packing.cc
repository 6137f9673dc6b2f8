#include "skrull/planner/chunk_flow/bin_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace skrull {
namespace {

// Placements of one item that a search may try: some milliseconds.
constexpr int64_t kSearchSteps = 200'000;

using Bins = std::vector<std::vector<int32_t>>;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// No packing has fewer bins.
int64_t LowerBound(std::span<const int64_t> sizes, int64_t capacity,
                   int64_t max_items) {
  int64_t sum = 0;
  int64_t large = 0;  // no two of these share a bin
  for (const int64_t size : sizes) {
    sum += size;
    if (size > capacity / 2) ++large;
  }
  return std::max(
      {CeilDiv(sum, capacity), large, CeilDiv(std::ssize(sizes), max_items)});
}

Bins BestFitDecreasing(std::span<const int64_t> sizes,
                       const std::vector<int32_t>& descending, int64_t capacity,
                       int64_t max_items) {
  Bins bins;
  // Room left -> open bins, the lowest index last.
  std::map<int64_t, std::vector<size_t>> open;
  for (const int32_t item : descending) {
    const int64_t size = sizes[static_cast<size_t>(item)];
    const auto best = open.lower_bound(size);
    size_t bin = bins.size();
    int64_t room = capacity;
    if (best == open.end()) {
      bins.emplace_back();
    } else {
      bin = best->second.back();
      room = best->first;
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    bins[bin].push_back(item);
    if (std::ssize(bins[bin]) < max_items && room > size) {
      open[room - size].push_back(bin);
    }
  }
  return bins;
}

// Looks for a packing into a given number of bins, depth first, items by
// descending size.
class Search {
 public:
  Search(std::span<const int64_t> sizes, const std::vector<int32_t>& descending,
         int64_t capacity, int64_t max_items, int64_t bins, int64_t* steps)
      : sizes_(sizes),
        descending_(descending),
        max_items_(max_items),
        steps_(steps),
        left_(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})),
        room_(static_cast<size_t>(bins), capacity),
        bins_(static_cast<size_t>(bins)) {}

  // True if it found one: Take() returns it. False when there is none, or the
  // steps ran out (*steps < 0).
  bool Run() { return Place(0, 0); }
  Bins Take() { return std::move(bins_); }

 private:
  int64_t SizeAt(size_t i) const {
    return sizes_[static_cast<size_t>(descending_[i])];
  }

  // Places items i, i + 1, ...; item i in bin `from` or later.
  bool Place(size_t i, size_t from) {
    if (i == descending_.size()) return true;
    // Room too small for the smallest item is lost.
    int64_t usable = 0;
    for (size_t b = 0; b < room_.size(); ++b) {
      if (room_[b] >= SizeAt(descending_.size() - 1) && HasSlot(b)) {
        usable += room_[b];
      }
    }
    if (usable < left_) return false;
    const int64_t size = SizeAt(i);
    for (size_t b = from; b < bins_.size(); ++b) {
      if (room_[b] < size || !HasSlot(b) || SeenBefore(b, from)) continue;
      if (--*steps_ < 0) return false;
      bins_[b].push_back(descending_[i]);
      room_[b] -= size;
      left_ -= size;
      // Items of one size are alike: the next one goes no further left.
      const bool alike = i + 1 < descending_.size() && SizeAt(i + 1) == size;
      if (Place(i + 1, alike ? b : 0)) return true;
      left_ += size;
      room_[b] += size;
      bins_[b].pop_back();
      if (*steps_ < 0) return false;
    }
    return false;
  }

  bool HasSlot(size_t bin) const { return std::ssize(bins_[bin]) < max_items_; }

  // True if an earlier candidate is like this one.
  bool SeenBefore(size_t bin, size_t from) const {
    for (size_t b = from; b < bin; ++b) {
      if (room_[b] == room_[bin] && bins_[b].size() == bins_[bin].size()) {
        return true;
      }
    }
    return false;
  }

  const std::span<const int64_t> sizes_;
  const std::vector<int32_t>& descending_;
  const int64_t max_items_;
  int64_t* const steps_;
  int64_t left_;               // size of the items not placed
  std::vector<int64_t> room_;  // per bin
  Bins bins_;
};

}  // namespace

Bins PackFewest(std::span<const int64_t> sizes, int64_t capacity,
                int64_t max_items) {
  std::vector<int32_t> descending(sizes.size());
  std::iota(descending.begin(), descending.end(), 0);
  std::stable_sort(
      descending.begin(), descending.end(), [&](int32_t a, int32_t b) {
        return sizes[static_cast<size_t>(a)] > sizes[static_cast<size_t>(b)];
      });
  Bins bins = BestFitDecreasing(sizes, descending, capacity, max_items);
  if (std::ssize(sizes) <= kExactItems) {
    int64_t steps = kSearchSteps;
    for (int64_t count = LowerBound(sizes, capacity, max_items);
         count < std::ssize(bins) && steps >= 0; ++count) {
      Search search(sizes, descending, capacity, max_items, count, &steps);
      if (search.Run()) {
        bins = search.Take();
        break;
      }
    }
  }
  for (std::vector<int32_t>& bin : bins) std::sort(bin.begin(), bin.end());
  return bins;
}

}  // namespace skrull
