// DACP, Alg. 1 of the Skrull paper: which sequences of one micro-batch stay
// whole on one CP rank and which are sharded over the group.
//
// Deliberate differences from the listing, each shown wrong on small inputs
// (docs/algorithms.md):
//  - its RollBack has the wrong sign and touches one rank; here the rank gains
//    the sequence's tokens and then every rank is charged its rows;
//  - that charge can push another rank over its memory, so roll-backs cascade
//    until none is, or nothing local is left;
//  - memory is counted in whole rows by the zigzag rule, not S/N, and includes
//    gathered K/V where the job models it.
#ifndef SKRULL_SERVER_PLANNER_DACP_H_
#define SKRULL_SERVER_PLANNER_DACP_H_

#include <cstdint>
#include <span>

#include "skrull/planner/placement.h"

namespace skrull {

enum class DacpVerdict : int8_t {
  kPlaced,                 // every sequence is placed and every rank fits
  kNeedsMoreMicroBatches,  // they do not fit together by this heuristic
};

// Clears `placement` and places `sequences` on it. Without gathered K/V the
// verdict is kPlaced exactly when their tokens fit the group's buckets
// together; a single sequence that fits local or sharded is always placed. The
// state of `placement` is unspecified, but consistent, after
// kNeedsMoreMicroBatches.
// REQUIRES: `sequences` ascending by length, without repetition.
// O(n log ranks).
DacpVerdict RunDacp(std::span<const int32_t> sequences, Placement& placement);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_DACP_H_
