// The best of n keys, with point updates: selection without a scan.
#ifndef SKRULL_SERVER_PLANNER_TOURNAMENT_TREE_H_
#define SKRULL_SERVER_PLANNER_TOURNAMENT_TREE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace skrull {

// Keys at positions [0, size), and the position of the best of any range by
// `Better` (std::less: the least key; std::greater: the greatest). Ties go to
// the lower position. Not thread-safe. Memory O(n).
template <typename Key, typename Better>
class TournamentTree {
 public:
  TournamentTree(int32_t size, Key key) : keys_(static_cast<size_t>(size)) {
    leaves_ = static_cast<int32_t>(
        std::bit_ceil(static_cast<uint32_t>(size > 0 ? size : 1)));
    winners_.resize(static_cast<size_t>(leaves_) * 2);
    Reset(key);
  }

  // Sets every key. O(n).
  void Reset(Key key) {
    Assign([key](int32_t) { return key; });
  }

  // Sets the key of each position to key_of(position). O(n).
  template <typename KeyOf>
  void Assign(KeyOf key_of) {
    for (int32_t i = 0; i < size(); ++i) {
      keys_[static_cast<size_t>(i)] = key_of(i);
    }
    for (int32_t i = 0; i < leaves_; ++i) {
      winners_[Node(leaves_ + i)] = i < size() ? i : kNone;
    }
    for (int32_t node = leaves_ - 1; node >= 1; --node) Play(node);
  }

  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  Key key(int32_t position) const {
    return keys_[static_cast<size_t>(position)];
  }

  // O(log n). REQUIRES: 0 <= position < size().
  void Set(int32_t position, Key key) {
    keys_[static_cast<size_t>(position)] = key;
    for (int32_t node = (leaves_ + position) / 2; node >= 1; node /= 2) {
      Play(node);
    }
  }

  // Position of the best key; -1 if there are none. O(1).
  int32_t Best() const { return winners_[1]; }

  // Position of the best key in [begin, end); -1 if the range is empty.
  // O(log n). REQUIRES: 0 <= begin, end <= size().
  int32_t Best(int32_t begin, int32_t end) const {
    int32_t left = kNone;
    int32_t right = kNone;
    int32_t low = leaves_ + begin;
    int32_t high = leaves_ + end;
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) left = Winner(left, winners_[Node(low++)]);
      if (high % 2 == 1) right = Winner(winners_[Node(--high)], right);
    }
    return Winner(left, right);
  }

  // The lowest position whose key is not worse than `key`; -1 if there is none.
  // O(log n).
  int32_t FirstNotWorse(Key key) const {
    int32_t node = 1;
    if (!NotWorse(winners_[1], key)) return kNone;
    while (node < leaves_) {
      node *= 2;
      if (!NotWorse(winners_[Node(node)], key)) ++node;
    }
    return node - leaves_;
  }

 private:
  static constexpr int32_t kNone = -1;

  static size_t Node(int32_t node) { return static_cast<size_t>(node); }

  bool NotWorse(int32_t position, Key key) const {
    return position != kNone && !Better()(key, this->key(position));
  }

  // `a` lies before `b`.
  int32_t Winner(int32_t a, int32_t b) const {
    if (a == kNone || b == kNone) return a == kNone ? b : a;
    return Better()(key(b), key(a)) ? b : a;
  }

  void Play(int32_t node) {
    winners_[Node(node)] =
        Winner(winners_[Node(2 * node)], winners_[Node(2 * node + 1)]);
  }

  std::vector<Key> keys_;
  int32_t leaves_;                // a power of two
  std::vector<int32_t> winners_;  // node i: best position below it; root is 1
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_TOURNAMENT_TREE_H_
