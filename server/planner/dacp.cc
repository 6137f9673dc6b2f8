#include "skrull/planner/dacp.h"

namespace skrull {
namespace {

// Rolls back once on the fullest rank, then until every rank fits again. False
// if nothing local is left to roll back and some rank is still over.
bool RollBackCascade(Placement& placement) {
  do {
    const int32_t fullest = placement.FullestRankWithLocal();
    if (fullest < 0) return false;
    placement.RollBack(fullest);
  } while (!placement.IsLegal());
  return true;
}

// Makes the sequence local to the rank that the rule chooses; false if that
// has no room.
bool TryLocal(int32_t sequence, LocalRule rule, Placement& placement) {
  if (rule == LocalRule::kLeastWork) {
    const int32_t rank = placement.LeastLoadedRank();
    if (placement.FitsLocal(sequence, rank)) {
      placement.Assign(sequence, rank);
      return true;
    }
  }
  const int32_t rank = placement.EmptiestRank();
  if (!placement.FitsLocal(sequence, rank)) return false;
  placement.Assign(sequence, rank);
  return true;
}

}  // namespace

DacpVerdict RunDacp(std::span<const int32_t> sequences, Placement& placement,
                    const DacpOptions& options) {
  placement.Clear();
  for (const int32_t sequence : sequences) {
    while (!TryLocal(sequence, options.local_rule, placement)) {
      if (!options.roll_back || placement.FitsSharded(sequence)) {
        placement.Shard(sequence);
        break;
      }
      if (!RollBackCascade(placement)) {
        return DacpVerdict::kNeedsMoreMicroBatches;
      }
    }
  }
  return placement.IsLegal() ? DacpVerdict::kPlaced : DacpVerdict::kOutOfMemory;
}

}  // namespace skrull
