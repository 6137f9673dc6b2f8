// What is behind the handles of skrull_client.h.
#ifndef SKRULL_CLIENT_C_API_HANDLES_H_
#define SKRULL_CLIENT_C_API_HANDLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/c_api/skrull_client.h"
#include "skrull/client/fallback_planner.h"
#include "skrull/client/local_planner.h"
#include "skrull/client/plan_stream.h"
#include "skrull/client/plan_types.h"
#include "skrull/client/planner_client.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/v1/plan.pb.h"

struct skrull_client_bytes {
  std::string value;
};

struct skrull_client_plan {
  skrull::PlanResult result;
  std::vector<int64_t> lengths;  // of the batch
  std::string fallback_reason;   // see skrull_client_plan_info
};

struct skrull_client_rank_plan {
  skrull::RankPlan plan;
  // The arrays of skrull_rank_plan.
  std::vector<int64_t> segment_offsets;
  std::vector<skrull_segment> segments;
  std::vector<int64_t> token_counts;
  std::vector<double> token_weights;
  std::vector<int32_t> blocks;
};

struct skrull_client_planner {
  std::unique_ptr<skrull::LocalPlanner> planner;
};

struct skrull_client_job {
  skrull::JobInfo info;
};

struct skrull_client_daemon {
  std::shared_ptr<skrull::PlannerClient> client;
};

struct skrull_client_fallback {
  std::shared_ptr<skrull::PlannerClient> client;  // outlives the planner
  std::unique_ptr<skrull::FallbackPlanner> planner;
};

struct skrull_client_stream {
  std::unique_ptr<skrull::PlanStream> stream;
};

namespace skrull::client_c {

// The message that a result's bytes are. Errors: INTERNAL if they are none.
absl::StatusOr<v1::Plan> ParsePlan(const PlanResult& result);

// A handle of a result, with its lengths.
absl::StatusOr<std::unique_ptr<skrull_client_plan>> MakePlanHandle(
    PlanResult result);

// A handle of a share, with its arrays.
std::unique_ptr<skrull_client_rank_plan> MakeRankPlanHandle(RankPlan plan);

// Gives the caller what `made` holds, or returns its error.
template <class Handle>
absl::Status GiveOut(absl::StatusOr<std::unique_ptr<Handle>> made,
                     Handle** handle) {
  if (!made.ok()) return made.status();
  *handle = made->release();
  return absl::OkStatus();
}

}  // namespace skrull::client_c

#endif  // SKRULL_CLIENT_C_API_HANDLES_H_
