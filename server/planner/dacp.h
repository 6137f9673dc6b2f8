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
// Its two variants in the paper are options here: Alg. 4, the round-robin
// baseline, and either without roll-back, whose answer to a full rank is to run
// out of memory.
#ifndef SKRULL_SERVER_PLANNER_DACP_H_
#define SKRULL_SERVER_PLANNER_DACP_H_

#include <cstdint>
#include <span>

#include "skrull/planner/placement.h"

namespace skrull {

// Which rank a sequence stays whole on, if that has room.
enum class LocalRule : int8_t {
  kLeastWork,  // the one with the least work, else the emptiest (Alg. 1)
  kEmptiest,   // the emptiest (Alg. 4)
};

struct DacpOptions {
  LocalRule local_rule = LocalRule::kLeastWork;
  bool roll_back = true;
};

enum class DacpVerdict : int8_t {
  kPlaced,                 // every sequence is placed and every rank fits
  kNeedsMoreMicroBatches,  // with roll-back: they do not fit together
  kOutOfMemory,            // without: all are placed, and some rank is over
};

// Clears `placement` and places `sequences` on it in the order given: ascending
// by length for Alg. 1, so that the long ones are sharded and a roll-back hits
// the shortest; Alg. 4 takes them as they come.
//
// With roll-back and without gathered K/V the verdict is kPlaced exactly when
// their tokens fit the group's buckets together. The state of `placement` is
// unspecified, but consistent, after kNeedsMoreMicroBatches.
//
// Without roll-back a sequence with no rank to be whole on is sharded whether
// or not every rank has room for its rows.
//
// Either way a single sequence that fits local or sharded is placed.
// REQUIRES: `sequences` without repetition. O(n log ranks).
DacpVerdict RunDacp(std::span<const int32_t> sequences, Placement& placement,
                    const DacpOptions& options = {});

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_DACP_H_
