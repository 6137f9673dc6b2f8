// The best plans of tiny batches, by trying all of them.
#ifndef SKRULL_TESTS_PLANNER_BRUTE_FORCE_H_
#define SKRULL_TESTS_PLANNER_BRUTE_FORCE_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/tests/planner/naive_checker.h"

namespace skrull::testing {

inline constexpr double kNoPlan = std::numeric_limits<double>::infinity();

// The least predicted_seconds of any legal plan of a job of scope GROUP;
// kNoPlan if there is none. Micro-batches of DP ranks do not meet in this
// scope, so subsets of the batch are solved apart and then combined. REQUIRES:
// dp_size <= 2. O((cp_size + 2)^K).
double BestGroupSeconds(const JobSpec& spec, std::span<const int64_t> lengths);

// As above for any scope, over every list of K micro-batches (some of which may
// be empty). O((K * blocks)^K): for K <= 3.
double BestSeconds(const JobSpec& spec, std::span<const int64_t> lengths);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_PLANNER_BRUTE_FORCE_H_
