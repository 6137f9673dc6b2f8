// What every fuzz target of the planner asserts.
#ifndef SKRULL_TESTS_FUZZ_PLAN_AND_CHECK_H_
#define SKRULL_TESTS_FUZZ_PLAN_AND_CHECK_H_

#include <cstdint>
#include <span>

#include "skrull/planner/job.h"

namespace skrull::fuzz {

// Plans the batch under every policy. Aborts if a plan breaks a promise: it is
// not legal, it does not survive the wire, a second run gives other bytes, or a
// batch is refused that CheckBatch accepts. Does nothing for pools or batches
// so large that they would only cost time.
void PlanAndCheck(const Job& job, std::span<const int64_t> lengths);

}  // namespace skrull::fuzz

#endif  // SKRULL_TESTS_FUZZ_PLAN_AND_CHECK_H_
