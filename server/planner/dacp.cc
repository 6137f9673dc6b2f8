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

}  // namespace

DacpVerdict RunDacp(std::span<const int32_t> sequences, Placement& placement) {
  placement.Clear();
  for (const int32_t sequence : sequences) {
    while (true) {
      int32_t rank = placement.LeastLoadedRank();
      if (!placement.FitsLocal(sequence, rank)) {
        rank = placement.EmptiestRank();
      }
      if (placement.FitsLocal(sequence, rank)) {
        placement.Assign(sequence, rank);
        break;
      }
      if (placement.FitsSharded(sequence)) {
        placement.Shard(sequence);
        break;
      }
      if (!RollBackCascade(placement)) {
        return DacpVerdict::kNeedsMoreMicroBatches;
      }
    }
  }
  return DacpVerdict::kPlaced;
}

}  // namespace skrull
