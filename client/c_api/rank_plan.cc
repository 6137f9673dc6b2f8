// Rank plans of skrull_client.h, as the arrays that the executor takes.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/client/plan_types.h"

namespace skrull::client_c {
namespace {

skrull_segment SegmentOf(const RankSegment& segment) {
  return {.sequence = segment.sequence,
          .token_count = segment.token_count,
          .first_rank = segment.block.first_rank,
          .degree = segment.block.degree,
          .low_begin = segment.low.begin,
          .low_end = segment.low.end,
          .high_begin = segment.high.begin,
          .high_end = segment.high.end};
}

absl::Status FillView(const skrull_client_rank_plan& share, int32_t ranks,
                      skrull_rank_plan* view) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  const RankPlan& plan = share.plan;
  if (plan.rank >= ranks) {
    return InvalidField("ranks", absl::StrCat("must be above the rank, ",
                                              plan.rank, ", is ", ranks));
  }
  if (plan.chunk_plan) {
    return absl::UnimplementedError(
        "a plan of POLICY_CHUNK_FLOW has chunks and no micro-batches");
  }
  if (plan.micro_batches.size() > kMost || plan.blocks.size() > kMost) {
    return absl::InternalError("the plan has more than 2^31 micro-batches");
  }
  view->digest = plan.digest.c_str();
  view->rank = plan.rank;
  view->ranks = ranks;
  view->micro_batch_count = static_cast<int32_t>(plan.micro_batches.size());
  view->block_count = static_cast<int32_t>(plan.blocks.size());
  view->segment_offsets = share.segment_offsets.data();
  view->segments = share.segments.data();
  view->token_counts = share.token_counts.data();
  view->token_weights = share.token_weights.data();
  view->blocks = share.blocks.data();
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<skrull_client_rank_plan> MakeRankPlanHandle(RankPlan plan) {
  auto share = std::make_unique<skrull_client_rank_plan>();
  share->segment_offsets.push_back(0);
  for (const RankMicroBatch& mb : plan.micro_batches) {
    for (const RankSegment& segment : mb.segments) {
      share->segments.push_back(SegmentOf(segment));
    }
    share->segment_offsets.push_back(
        static_cast<int64_t>(share->segments.size()));
    share->token_counts.push_back(mb.token_count);
    share->token_weights.push_back(mb.token_weight);
  }
  for (const Block& block : plan.blocks) {
    share->blocks.push_back(block.first_rank);
    share->blocks.push_back(block.degree);
  }
  share->plan = std::move(plan);
  return share;
}

}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_client_plan_rank(const skrull_client_plan* plan, int32_t rank,
                                skrull_client_rank_plan** rank_plan) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(rank_plan, "rank_plan"));
    absl::StatusOr<skrull::RankPlan> share =
        skrull::RankPlanOf(plan->result, rank);
    if (!share.ok()) return share.status();
    *rank_plan = MakeRankPlanHandle(*std::move(share)).release();
    return absl::OkStatus();
  });
}

void skrull_client_rank_plan_destroy(skrull_client_rank_plan* rank_plan) {
  delete rank_plan;
}

int32_t skrull_client_rank_plan_describe(
    const skrull_client_rank_plan* rank_plan,
    skrull_client_rank_plan_info* info) {
  return Call([&]() -> absl::Status {
    skrull_client_rank_plan_info filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(rank_plan, "rank_plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(info, "info", &filled));
    const skrull::RankPlan& plan = rank_plan->plan;
    filled.job = plan.job.c_str();
    filled.step = plan.step;
    filled.attempt = plan.attempt;
    filled.rank = plan.rank;
    filled.batch_token_count = plan.batch_token_count;
    filled.predicted_seconds = plan.predicted_seconds;
    *info = filled;
    return absl::OkStatus();
  });
}

int32_t skrull_client_rank_plan_view(const skrull_client_rank_plan* rank_plan,
                                     int32_t ranks, skrull_rank_plan* view) {
  return Call([&]() -> absl::Status {
    skrull_rank_plan filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(rank_plan, "rank_plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(view, "view", &filled));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(FillView(*rank_plan, ranks, &filled));
    *view = filled;
    return absl::OkStatus();
  });
}

}  // extern "C"
