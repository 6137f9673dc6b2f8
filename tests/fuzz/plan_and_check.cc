#include "skrull/tests/fuzz/plan_and_check.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull::fuzz {
namespace {

constexpr int32_t kMaxRanks = 256;
constexpr size_t kMaxLengths = 512;
// One long sequence makes 2^21 chunks, which take seconds under a sanitizer.
constexpr int64_t kMaxChunkedTokens = int64_t{1} << 20;
constexpr size_t kMaxChunks = 4096;

[[noreturn]] void Broken(const std::string& promise,
                         const absl::Status& status = absl::OkStatus()) {
  std::fprintf(stderr, "broken promise: %s: %s\n", promise.c_str(),
               status.ToString().c_str());
  std::abort();
}

// The refusals that MakePlan adds to those of CheckBatch (planner.h).
bool MayRefuse(const Job& job, Policy policy, const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail) return false;
  switch (detail->reason) {
    case ErrorReason::kSimulatedOom:
      return !job.heuristic().roll_back;
    case ErrorReason::kLimitExceeded:
      return true;
    case ErrorReason::kFieldInvalid:  // the cost of a step overflows
      return policy == Policy::kChunkFlow;
    default:
      return false;
  }
}

}  // namespace

void PlanAndCheck(const Job& job, std::span<const int64_t> lengths) {
  if (job.pool().ranks() > kMaxRanks || lengths.size() > kMaxLengths) return;
  const auto tokens =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0},
                      [](int64_t sum, int64_t length) {
                        return sum + std::clamp<int64_t>(length, 0, kMaxTokens);
                      });
  for (const Policy policy : AllPolicies()) {
    if (policy == Policy::kChunkFlow && tokens > kMaxChunkedTokens) continue;
    const absl::Status can = CheckBatch(job, lengths, policy);
    const PlanOptions options = {.key = {"fuzz", 1, 2}, .policy = policy};
    const absl::StatusOr<Plan> plan = MakePlan(job, lengths, options);
    if (can.ok() && MayRefuse(job, policy, plan.status())) continue;
    if (plan.status() != can) Broken("feasible if CheckBatch says so", can);
    if (!plan.ok()) continue;
    if (plan->chunk_plan && plan->chunk_plan->chunks.size() > kMaxChunks) {
      continue;
    }
    const absl::Status legal = CheckPlan(job, lengths, *plan);
    if (!legal.ok()) Broken("legal", legal);
    const v1::Plan wire = PlanToProto(*plan);
    const absl::StatusOr<Plan> back = PlanFromProto(wire);
    if (!back.ok() || *back != *plan) Broken("survives the wire");
    if (PlanDigest(wire) != wire.digest()) Broken("digest");
    const absl::StatusOr<Plan> again = MakePlan(job, lengths, options);
    if (!again.ok() ||
        CanonicalBytes(PlanToProto(*again)) != CanonicalBytes(wire)) {
      Broken("deterministic");
    }
  }
}

}  // namespace skrull::fuzz
