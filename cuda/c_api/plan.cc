// Rank plans of skrull_exec.h.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"

namespace skrull::exec::c_api {
namespace {

constexpr int32_t kMaxRanks = 1 << 20;
// More segments than any kernel's grid has rows, and any plan holds.
constexpr int64_t kMaxSegments = int64_t{1} << 31;

Status CheckRange(const char* name, int64_t value, int64_t least,
                  int64_t most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument("rank plan: " + std::string(name) + " is " +
                         std::to_string(value) + ", not in " +
                         std::to_string(least) + " .. " + std::to_string(most));
}

// Sizes, and pointers where there is something to point to.
Status CheckArrays(const skrull_rank_plan& given) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRange("ranks", given.ranks, 1, kMaxRanks));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckRange("rank", given.rank, 0, int64_t{given.ranks} - 1));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRange(
      "micro_batch_count", given.micro_batch_count, 0, kMaxRanks * 64));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckRange("block_count", given.block_count, 0,
                                         int64_t{2} * given.ranks));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.digest, "rank plan: digest"));
  if (given.block_count > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.blocks, "rank plan: blocks"));
  }
  if (given.micro_batch_count == 0) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(
      NotNull(given.segment_offsets, "rank plan: segment_offsets"));
  SKRULL_EXEC_RETURN_IF_ERROR(
      NotNull(given.token_counts, "rank plan: token_counts"));
  int64_t before = 0;
  for (int32_t i = 0; i <= given.micro_batch_count; ++i) {
    const int64_t offset = given.segment_offsets[i];
    if (offset < before || offset > kMaxSegments || (i == 0 && offset != 0)) {
      return InvalidArgument("rank plan: segment_offsets[" + std::to_string(i) +
                             "] is " + std::to_string(offset));
    }
    before = offset;
  }
  if (before > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given.segments, "rank plan: segments"));
  }
  return {};
}

bool IsBlock(int32_t first_rank, int32_t degree, int32_t ranks) {
  return first_rank >= 0 && degree >= 1 &&
         int64_t{first_rank} + degree <= ranks;
}

Result<RankMicroBatch> ReadMicroBatch(const skrull_rank_plan& given,
                                      int32_t index) {
  RankMicroBatch mb;
  for (int64_t i = given.segment_offsets[index];
       i < given.segment_offsets[index + 1]; ++i) {
    const skrull_segment& s = given.segments[i];
    // BuildMaps checks the rest, and works as much as a block has ranks.
    if (!IsBlock(s.first_rank, s.degree, given.ranks)) {
      return InvalidArgument("segment " + std::to_string(i) + " is on ranks [" +
                             std::to_string(s.first_rank) + ", " +
                             std::to_string(int64_t{s.first_rank} + s.degree) +
                             "), not all in the pool");
    }
    for (const int64_t bound :
         {s.low_begin, s.low_end, s.high_begin, s.high_end}) {
      if (bound < 0 || bound > s.token_count) {
        return InvalidArgument("segment " + std::to_string(i) +
                               " ends at position " + std::to_string(bound) +
                               " of " + std::to_string(s.token_count));
      }
    }
    mb.segments.push_back({.sequence = s.sequence,
                           .token_count = s.token_count,
                           .block = {s.first_rank, s.degree},
                           .low = {s.low_begin, s.low_end},
                           .high = {s.high_begin, s.high_end}});
    mb.row_count += mb.segments.back().rows();
  }
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
  for (int32_t i = 0; i < given.block_count; ++i) {
    const Block block{given.blocks[2 * i], given.blocks[2 * i + 1]};
    if (!IsBlock(block.first_rank, block.degree, given.ranks)) {
      return InvalidArgument("rank plan: block " + std::to_string(i) +
                             " is no run of the pool's ranks");
    }
    plan.blocks.push_back(block);
  }
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

// Copies what get(micro-batch) returns to a caller's array.
template <class Get>
int32_t CopyOut(const skrull_plan* plan, int32_t micro_batch, int32_t* to,
                int64_t count, const Get& get) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(Find(plan, micro_batch));
    const std::vector<int32_t> values =
        get(plan->plan.micro_batches[static_cast<size_t>(micro_batch)]);
    const auto size = static_cast<int64_t>(values.size());
    if (count != size) {
      return InvalidArgument("count is " + std::to_string(count) +
                             ", where there are " + std::to_string(size));
    }
    if (size > 0) SKRULL_EXEC_RETURN_IF_ERROR(NotNull(to, "the array"));
    std::copy(values.begin(), values.end(), to);
    return {};
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
  return CopyOut(plan, micro_batch, positions, count,
                 [](const RankMicroBatch& mb) {
                   return skrull::exec::RowPositions(mb.segments);
                 });
}

int32_t skrull_plan_sequences(const skrull_plan* plan, int32_t micro_batch,
                              int32_t* sequences, int64_t count) {
  return CopyOut(plan, micro_batch, sequences, count,
                 [](const RankMicroBatch& mb) {
                   return skrull::exec::RowSequences(mb.segments);
                 });
}

int32_t skrull_plan_cu_seqlens(const skrull_plan* plan, int32_t micro_batch,
                               int32_t* cu_seqlens, int64_t count) {
  return CopyOut(
      plan, micro_batch, cu_seqlens, count,
      [](const RankMicroBatch& mb) { return skrull::CuSeqlens(mb.segments); });
}

}  // extern "C"
