// Rank plans of skrull_exec.h.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/c_api/plan_arrays.h"

namespace skrull::exec::c_api {
namespace {

// Sizes, and pointers where there is something to point to.
Status CheckArrays(const skrull_rank_plan& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRank(given.rank, given.ranks));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange("micro_batch_count", given.micro_batch_count, 0, kMaxItems));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.digest, "rank plan: digest"));
  if (given.micro_batch_count == 0) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(
      NotNull(given.token_counts, "rank plan: token_counts"));
  return CheckOffsets(given.segment_offsets, given.micro_batch_count,
                      given.segments);
}

Result<RankMicroBatch> ReadMicroBatch(const skrull_rank_plan& given,
                                      int32_t index) {
  RankMicroBatch mb;
  Result<std::vector<RankSegment>> segments =
      ReadSegments(given.segments, given.segment_offsets[index],
                   given.segment_offsets[index + 1], given.ranks);
  SKRULL_EXEC_RETURN_IF_ERROR(segments.status());
  mb.segments = *std::move(segments);
  for (const RankSegment& segment : mb.segments) mb.row_count += segment.rows();
  mb.token_count = given.token_counts[index];
  if (mb.token_count < std::max<int64_t>(mb.row_count, 0)) {
    return InvalidArgument("token_count is " + std::to_string(mb.token_count) +
                           ", where this rank has " +
                           std::to_string(mb.row_count) + " rows");
  }
  return mb;
}

Status Build(const skrull_rank_plan& given, skrull_plan* built) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckArrays(given));
  RankPlan& plan = built->plan;
  plan.digest = given.digest;
  plan.rank = given.rank;
  Result<std::vector<Block>> blocks =
      ReadBlocks(given.blocks, given.block_count, given.ranks);
  SKRULL_EXEC_RETURN_IF_ERROR(blocks.status());
  plan.blocks = *std::move(blocks);
  for (int32_t i = 0; i < given.micro_batch_count; ++i) {
    const auto name = [&](const Status& status) {
      return Status(status.code(), "rank plan: micro-batch " +
                                       std::to_string(i) + ": " +
                                       status.message());
    };
    Result<RankMicroBatch> mb = ReadMicroBatch(given, i);
    if (!mb.ok()) return name(mb.status());
    Result<MicroBatchMaps> maps = BuildMaps(*mb, given.rank, 0.5);
    if (!maps.ok()) return name(maps.status());
    if (mb->token_count > INT64_MAX - plan.batch_token_count) {
      return InvalidArgument("rank plan: token_counts overflow");
    }
    plan.batch_token_count += mb->token_count;
    plan.micro_batches.push_back(*std::move(mb));
    built->maps.push_back(*std::move(maps));
  }
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    RankMicroBatch& mb = plan.micro_batches[i];
    if (given.token_weights == nullptr) {
      mb.token_weight = mb.row_count == 0
                            ? 0
                            : static_cast<double>(mb.row_count) /
                                  static_cast<double>(plan.batch_token_count);
      continue;
    }
    mb.token_weight = given.token_weights[i];
    if (!(mb.token_weight >= 0 && mb.token_weight <= 1)) {
      return InvalidArgument("rank plan: token_weights[" + std::to_string(i) +
                             "] is " + std::to_string(mb.token_weight));
    }
  }
  return {};
}

Status Find(const skrull_plan* plan, int32_t micro_batch) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
  const auto count = static_cast<int64_t>(plan->maps.size());
  if (micro_batch >= 0 && micro_batch < count) return {};
  return InvalidArgument("micro_batch is " + std::to_string(micro_batch) +
                         ", where the plan has " + std::to_string(count));
}

// Copies what get(segments of the micro-batch) returns to a caller's array.
template <class Get>
int32_t Query(const skrull_plan* plan, int32_t micro_batch, int32_t* to,
              int64_t count, const Get& get) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(Find(plan, micro_batch));
    const auto index = static_cast<size_t>(micro_batch);
    return CopyOut(get(plan->plan.micro_batches[index].segments), to, count);
  });
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::RankMicroBatch;
using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_plan_create(const skrull_rank_plan* rank_plan,
                           skrull_plan** plan) {
  return Call([&]() -> Status {
    skrull_rank_plan read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(rank_plan, "rank plan", &read));
    auto built = std::make_unique<skrull_plan>();
    SKRULL_EXEC_RETURN_IF_ERROR(Build(read, built.get()));
    *plan = built.release();
    return {};
  });
}

void skrull_plan_destroy(skrull_plan* plan) { delete plan; }

int32_t skrull_plan_micro_batch_count(const skrull_plan* plan, int32_t* count) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(count, "count"));
    *count = static_cast<int32_t>(plan->maps.size());
    return {};
  });
}

int32_t skrull_plan_micro_batch(const skrull_plan* plan, int32_t micro_batch,
                                skrull_micro_batch_info* info) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(Find(plan, micro_batch));
    skrull_micro_batch_info filled;
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(info, "micro-batch info", &filled));
    const auto index = static_cast<size_t>(micro_batch);
    const RankMicroBatch& mb = plan->plan.micro_batches[index];
    const skrull::exec::MicroBatchMaps& maps = plan->maps[index];
    filled.rows = maps.rows;
    filled.local_rows = maps.local_rows;
    const std::vector<int32_t> offsets = skrull::CuSeqlens(mb.segments);
    filled.cu_seqlens_count = static_cast<int64_t>(offsets.size());
    filled.max_seqlen = std::max(maps.local.max_q, maps.sharded.max_q);
    filled.block_count = static_cast<int64_t>(maps.blocks.size());
    filled.token_count = mb.token_count;
    filled.token_weight = mb.token_weight;
    *info = filled;
    return {};
  });
}

int32_t skrull_plan_positions(const skrull_plan* plan, int32_t micro_batch,
                              int32_t* positions, int64_t count) {
  return Query(plan, micro_batch, positions, count, skrull::exec::RowPositions);
}

int32_t skrull_plan_sequences(const skrull_plan* plan, int32_t micro_batch,
                              int32_t* sequences, int64_t count) {
  return Query(plan, micro_batch, sequences, count, skrull::exec::RowSequences);
}

int32_t skrull_plan_cu_seqlens(const skrull_plan* plan, int32_t micro_batch,
                               int32_t* cu_seqlens, int64_t count) {
  return Query(plan, micro_batch, cu_seqlens, count, skrull::CuSeqlens);
}

}  // extern "C"
