// The digest of a plan as bytes, and what most ranks hold: how ranks find out
// before a step's first collective whether they have the same plan.
//
// Part of skrull::layout: client and executor compare digests alike.
#ifndef SKRULL_SERVER_PLANNER_PLAN_DIGEST_H_
#define SKRULL_SERVER_PLANNER_PLAN_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>

namespace skrull {

// A SHA-256.
using DigestBytes = std::array<uint8_t, 32>;

// What a rank without a plan contributes. No plan has this SHA-256.
inline constexpr DigestBytes kNoDigest = {};

// From 64 hexadecimal digits; nothing for any other text.
std::optional<DigestBytes> ParseDigest(std::string_view hex);

// Index of the most common value, the first of those that are equally common; 0
// if there are none. O(n log n).
template <class T>
size_t MostCommon(std::span<const T> values) {
  std::map<T, size_t> votes;
  for (const T& value : values) ++votes[value];
  size_t most = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (votes[values[i]] > votes[values[most]]) most = i;
  }
  return most;
}

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_PLAN_DIGEST_H_
