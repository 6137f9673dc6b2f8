// A step's time that no plan of the batch can beat, and what sets it.
#ifndef SKRULL_SERVER_PLANNER_LOWER_BOUND_H_
#define SKRULL_SERVER_PLANNER_LOWER_BOUND_H_

#include <cstdint>
#include <span>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"

namespace skrull {

// `seconds` is the largest of three bounds:
//  - `even_seconds`: the work of all sequences, each on the degree where it is
//    least, spread evenly over the ranks, and the overhead of the micro-batches
//    that memory asks for;
//  - `alone_seconds`: the sequence that takes longest alone, on the block that
//    is fastest for it, exchange included, and one micro-batch's overhead;
//  - `traded_seconds`: a sequence that takes long has to be sharded widely for
//    the step to be short, and what is sharded must be exchanged, over slow
//    links where blocks are wide. Let a plan take P. A sequence lies on a
//    degree where it alone takes at most P. A rank that computes L for local
//    sequences and D for sharded ones and exchanges for E takes max(E, L) + D,
//    at least x E + (1 - x) L + D for every x in [0, 1]. Summed over
//    micro-batches and ranks, with the least of every sequence over the degrees
//    open to it, that must fit into P times the ranks, overheads left out. The
//    bound is the least P that passes this test for each x tried.
struct LowerBound {
  double seconds = 0;
  double even_seconds = 0;
  double alone_seconds = 0;
  double traded_seconds = 0;
  // Of even_seconds, the micro-batches' overhead.
  double overhead_seconds = 0;
  // The sequence of alone_seconds, the first of those, and the part of
  // alone_seconds that is its exchange.
  int32_t longest = 0;
  double exchange_seconds = 0;
};

// Holds for every policy but POLICY_CHUNK_FLOW, which cuts sequences.
// REQUIRES: lengths not empty, each placeable (<= job.longest_sequence()).
// O(K * degrees).
LowerBound ComputeLowerBound(const Job& job, const CostModel& cost,
                             std::span<const int64_t> lengths);

// The bound as a plan of `predicted` seconds reports it: of a plan that meets
// it, sums over the batch can put the bound above the plan by their rounding.
double WithoutRounding(double bound, double predicted);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_LOWER_BOUND_H_
