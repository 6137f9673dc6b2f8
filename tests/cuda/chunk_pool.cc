#include "skrull/tests/cuda/chunk_pool.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>

#include "skrull/tests/cuda/collected_sequence.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kWait = std::chrono::seconds(60);

// MakeTensors wants a micro-batch; a chunk's ranges are positions already.
RankMicroBatch AsMicroBatch(const RankChunk& chunk) {
  RankMicroBatch mb;
  mb.segments = chunk.segments;
  mb.row_count = chunk.row_count;
  return mb;
}

ForwardTensors ForwardOf(const RankTensors& t) {
  return {.q = t.q.view(),
          .k = t.k.view(),
          .v = t.v.view(),
          .o = t.o.view(),
          .lse = t.lse.view()};
}

BackwardTensors BackwardOf(const RankTensors& t) {
  return {.q = t.q.view(),
          .k = t.k.view(),
          .v = t.v.view(),
          .o = t.o.view(),
          .lse = t.lse.view(),
          .d_o = t.d_o.view(),
          .dq = t.dq.view(),
          .dk = t.dk.view(),
          .dv = t.dv.view()};
}

// One rank's trainer: runs the operations as they come. A recomputation gets
// tensors of its own, so that it cannot live on what the forward pass wrote.
class RankRun {
 public:
  RankRun(const RankPlan& plan, const SequenceData* data, int64_t sequences,
          const RunOptions& options)
      : plan_(plan), data_(data), sequences_(sequences), options_(options) {
    kept_.resize(static_cast<size_t>(options.layers));
    discarded_.resize(static_cast<size_t>(options.layers));
  }

  Status Run(ChunkExecutor* executor, Stream stream) {
    const Result<ChunkStep> step = executor->Prepare(plan_);
    SKRULL_EXEC_RETURN_IF_ERROR(step.status());
    const auto& operations = plan_.chunk_plan->operations;
    for (size_t i = 0; i < operations.size(); ++i) {
      const auto [pass, chunk] = operations[i];
      const auto index = static_cast<int32_t>(i);
      for (int32_t n = 0; n < options_.layers; ++n) {
        if (pass == ChunkPass::kBackward) {
          const int32_t layer = options_.layers - 1 - n;
          SKRULL_EXEC_RETURN_IF_ERROR(
              executor->Backward(*step, index, layer,
                                 BackwardOf(Of(kept_, layer, chunk)), stream));
          continue;
        }
        auto& set = pass == ChunkPass::kForwardDiscard ? discarded_ : kept_;
        Of(set, n, chunk) = NewTensors(n, chunk);
        SKRULL_EXEC_RETURN_IF_ERROR(executor->Forward(
            *step, index, n, ForwardOf(Of(set, n, chunk)), stream));
      }
    }
    return executor->Wait(kWait);
  }

  // After the work is done.
  void Deliver(size_t rank, ChunkRunResult* result) {
    for (size_t layer = 0; layer < kept_.size(); ++layer) {
      for (const auto& [chunk, first] : discarded_[layer]) {
        const auto again = kept_[layer].find(chunk);
        if (again == kept_[layer].end()) continue;
        ++recomputed_;
        other_bits_ += again->second.o.bytes() != first.o.bytes() ||
                       again->second.lse.bytes() != first.lse.bytes();
      }
      result->tensors[layer][rank] = std::move(kept_[layer]);
    }
  }
  int recomputed() const { return recomputed_; }
  int other_bits() const { return other_bits_; }

 private:
  using Set = std::vector<ChunkRunResult::ChunkTensors>;  // [layer]

  static RankTensors& Of(Set& set, int32_t layer, int32_t chunk) {
    return set[static_cast<size_t>(layer)][chunk];
  }

  RankTensors NewTensors(int32_t layer, int32_t chunk) const {
    const auto share =
        std::ranges::find(plan_.chunk_plan->chunks, chunk, &RankChunk::chunk);
    return MakeTensors(AsMicroBatch(*share), data_ + layer * sequences_,
                       options_);
  }

  const RankPlan& plan_;
  const SequenceData* const data_;
  const int64_t sequences_;
  const RunOptions& options_;
  Set kept_;
  Set discarded_;
  int recomputed_ = 0;
  int other_bits_ = 0;
};

}  // namespace

TestChunks::TestChunks(int32_t dp_size, int32_t cp_size, int64_t retained)
    : cp_size_(cp_size) {
  plan_.retained_chunks = retained;
  for (int32_t d = 0; d < dp_size; ++d) {
    plan_.schedules.push_back({.dp_rank = d, .operations = {}});
  }
}

void TestChunks::AddSplit(int32_t dp_rank,
                          const std::vector<int32_t>& lengths) {
  const auto sequence = static_cast<int32_t>(lengths_.size());
  lengths_.push_back(std::accumulate(lengths.begin(), lengths.end(), 0));
  int64_t begin = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    plan_.chunks.push_back({.dp_rank = dp_rank,
                            .pieces = {{.sequence = sequence,
                                        .token_count = lengths_.back(),
                                        .range = {begin, begin + lengths[i]}}},
                            .group_index = static_cast<int32_t>(i),
                            .group_size = static_cast<int32_t>(lengths.size()),
                            .token_count = lengths[i]});
    begin += lengths[i];
  }
  Schedule(dp_rank, static_cast<int32_t>(lengths.size()));
}

void TestChunks::AddWhole(int32_t dp_rank,
                          const std::vector<int32_t>& lengths) {
  Chunk chunk{.dp_rank = dp_rank, .pieces = {}};
  for (const int32_t n : lengths) {
    chunk.pieces.push_back({.sequence = static_cast<int32_t>(lengths_.size()),
                            .token_count = n,
                            .range = {0, n}});
    chunk.token_count += n;
    lengths_.push_back(n);
  }
  plan_.chunks.push_back(std::move(chunk));
  Schedule(dp_rank, 1);
}

// ChunkFlow's order, as papers describe it: all forward, keeping the last K;
// those backward in reverse; the others recomputed and backward in reverse.
void TestChunks::Schedule(int32_t dp_rank, int32_t count) {
  auto& operations = plan_.schedules[static_cast<size_t>(dp_rank)].operations;
  const auto end = static_cast<int32_t>(plan_.chunks.size());
  for (int32_t c = end - count; c < end; ++c) {
    operations.push_back({end - c > plan_.retained_chunks
                              ? ChunkPass::kForwardDiscard
                              : ChunkPass::kForward,
                          c});
  }
  for (int32_t c = end - 1; c >= end - count; --c) {
    if (end - c > plan_.retained_chunks) {
      operations.push_back({ChunkPass::kRecompute, c});
    }
    operations.push_back({ChunkPass::kBackward, c});
  }
}

RankPlan TestChunks::ForRank(int32_t rank) const {
  RankPlan plan;
  plan.digest = "test";
  plan.rank = rank;
  for (int32_t d = 0; d < std::ssize(plan_.schedules) && cp_size_ > 1; ++d) {
    plan.blocks.push_back({d * cp_size_, cp_size_});
  }
  const int32_t dp_rank = rank / cp_size_;
  RankChunkPlan& share = plan.chunk_plan.emplace();
  share.retained_chunks = plan_.retained_chunks;
  share.operations = plan_.schedules[static_cast<size_t>(dp_rank)].operations;
  for (size_t c = 0; c < plan_.chunks.size(); ++c) {
    const Chunk& chunk = plan_.chunks[c];
    if (chunk.dp_rank != dp_rank) continue;
    std::vector<SequencePlacement> placements;
    for (const ChunkPiece& piece : chunk.pieces) {
      placements.push_back(
          {.sequence = piece.sequence,
           .token_count = static_cast<int32_t>(piece.range.size()),
           .first_rank = dp_rank * cp_size_,
           .degree = cp_size_});
    }
    RankChunk mine{.chunk = static_cast<int32_t>(c),
                   .segments = RankSegments(placements, rank),
                   .row_count = 0,
                   .group_index = chunk.group_index,
                   .group_size = chunk.group_size,
                   .token_weight = 0,
                   .token_count = chunk.token_count};
    for (size_t i = 0; i < mine.segments.size(); ++i) {
      RankSegment& segment = mine.segments[i];
      const ChunkPiece& piece = chunk.pieces[i];
      segment.token_count = piece.token_count;
      for (TokenRange* range : {&segment.low, &segment.high}) {
        range->begin += piece.range.begin;
        range->end += piece.range.begin;
      }
      mine.row_count += segment.rows();
    }
    share.chunks.push_back(std::move(mine));
  }
  return plan;
}

TestChunks RandomChunks(std::mt19937_64* random, int32_t max_ranks,
                        double budget) {
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(*random);
  };
  const int32_t cp_size = pick(1, max_ranks);
  const int32_t dp_size = pick(1, std::min(2, max_ranks / cp_size));
  TestChunks chunks(dp_size, cp_size, pick(1, 4));
  const auto length = [&](int32_t most) {
    if (pick(0, 2) == 0) return pick(1, std::min(most, 2 * cp_size + 1));
    return pick(1, most);
  };
  for (int i = pick(1, 4); i > 0; --i) {
    const int32_t dp_rank = pick(0, dp_size - 1);
    std::vector<int32_t> lengths;
    const bool split = pick(0, 2) > 0;
    const int32_t count = split ? pick(2, 6) : pick(1, 5);
    int32_t sum = 0;
    for (int32_t n = 0; n < count; ++n) {
      lengths.push_back(length(split ? 60 : 90));
      sum += lengths.back();
    }
    if (double(sum) * sum > budget) continue;
    budget -= double(sum) * sum;
    if (split) {
      chunks.AddSplit(dp_rank, lengths);
    } else {
      chunks.AddWhole(dp_rank, lengths);
    }
  }
  return chunks;
}

std::vector<SequenceData> RandomData(std::mt19937_64* random,
                                     const AttentionProblem& problem,
                                     const TestChunks& chunks, int32_t layers) {
  std::vector<SequenceData> data;
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (const int32_t tokens : chunks.sequence_lengths()) {
      data.push_back(RandomSequence(random, problem, tokens));
    }
  }
  return data;
}

ChunkRunResult RunChunks(const TestChunks& chunks,
                         const std::vector<SequenceData>& data,
                         const RunOptions& options) {
  const auto ranks = static_cast<size_t>(chunks.ranks());
  ChunkRunResult result;
  result.statuses.resize(ranks);
  result.statuses_after.resize(ranks);
  result.store_bytes.resize(ranks);
  result.tensors.resize(static_cast<size_t>(options.layers));
  for (auto& layer : result.tensors) layer.resize(ranks);
  std::mutex mutex;
  RunRanks(chunks.ranks(), options,
           [&](int32_t rank, const ExecutorResources& resources, Stream stream,
               const std::function<void()>& all_end) {
             const auto r = static_cast<size_t>(rank);
             const RankPlan plan = chunks.ForRank(rank);
             RankRun run(plan, data.data(),
                         std::ssize(chunks.sequence_lengths()), options);
             auto executor = ChunkExecutor::Create(
                 {.problem = options.executor.problem,
                  .layer_count = options.layers,
                  .grad_comm_dtype = options.executor.grad_comm_dtype},
                 resources);
             result.statuses[r] = executor.status();
             if (!executor.ok()) {
               resources.communicators->Abort(executor.status());
             } else {
               result.statuses[r] = run.Run(executor->get(), stream);
             }
             all_end();
             if (executor.ok()) {
               result.statuses_after[r] = (*executor)->Poll();
               result.store_bytes[r] = (*executor)->store_bytes();
             }
             const std::lock_guard lock(mutex);
             run.Deliver(r, &result);
             result.recomputed += run.recomputed();
             result.recomputed_with_other_bits += run.other_bits();
           });
  return result;
}

Errors CompareWithDense(const TestChunks& chunks,
                        const std::vector<SequenceData>& data,
                        const AttentionProblem& problem,
                        const ChunkRunResult& result) {
  Errors errors;
  const std::vector<int32_t>& lengths = chunks.sequence_lengths();
  for (size_t layer = 0; layer < result.tensors.size(); ++layer) {
    std::vector<CollectedSequence> collected;
    for (const int32_t tokens : lengths) {
      collected.emplace_back(problem, tokens);
    }
    for (int32_t rank = 0; rank < chunks.ranks(); ++rank) {
      const auto& tensors = result.tensors[layer][static_cast<size_t>(rank)];
      const RankPlan plan = chunks.ForRank(rank);
      for (const RankChunk& chunk : plan.chunk_plan->chunks) {
        const auto found = tensors.find(chunk.chunk);
        if (found == tensors.end()) continue;
        int64_t row = 0;
        for (const RankSegment& segment : chunk.segments) {
          for (const TokenRange& range : {segment.low, segment.high}) {
            for (int64_t at = range.begin; at < range.end; ++at, ++row) {
              collected[static_cast<size_t>(segment.sequence)].Take(
                  found->second, row, at);
            }
          }
        }
      }
    }
    for (size_t s = 0; s < lengths.size(); ++s) {
      collected[s].Compare(data[layer * lengths.size() + s], problem, &errors);
    }
  }
  return errors;
}

bool SameBits(const ChunkRunResult& a, const ChunkRunResult& b) {
  for (size_t layer = 0; layer < a.tensors.size(); ++layer) {
    for (size_t r = 0; r < a.tensors[layer].size(); ++r) {
      for (const auto& [chunk, x] : a.tensors[layer][r]) {
        const RankTensors& y = b.tensors[layer][r].at(chunk);
        if (x.o.bytes() != y.o.bytes() || x.lse.bytes() != y.lse.bytes() ||
            x.dq.bytes() != y.dq.bytes() || x.dk.bytes() != y.dk.bytes() ||
            x.dv.bytes() != y.dv.bytes()) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace skrull::exec::testing
