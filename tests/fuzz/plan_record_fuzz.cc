// The bytes of a stored plan, as a damaged store could hold them: what they
// decode to hands every rank a share, or they are refused. Seeds: corpus/plan,
// in text form.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/planner/error.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/server/committed_plan.h"

namespace {

constexpr int32_t kRanks = 8;  // of the seeds' plans

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skrull::PlanRecord record = {
      .key = {"fuzz", 1, 2},
      .generation = 1,
      .request_digest = "digest",
      .plan = std::string(reinterpret_cast<const char*>(data), size)};
  const absl::StatusOr<std::shared_ptr<const skrull::CommittedPlan>> plan =
      skrull::CommittedPlan::Decode(record);
  if (!plan.ok()) {
    const auto detail = skrull::GetErrorDetail(plan.status());
    if (!detail || detail->reason != skrull::ErrorReason::kInternal) {
      std::abort();
    }
    return 0;
  }
  if ((*plan)->record() != record || (*plan)->size_bytes() <= 0) std::abort();
  (*plan)->Prepare();
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const skrull::RankPlan share = (*plan)->Share(rank);
    if (share !=
        skrull::MakeRankPlan((*plan)->plan(), (*plan)->digest(), rank)) {
      std::abort();
    }
  }
  return 0;
}
