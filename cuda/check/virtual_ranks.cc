#include "skrull/cuda/check/virtual_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "skrull/cuda/executor.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/profile/own_stream.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;
using exec::Tensor;

constexpr auto kLimit = std::chrono::seconds(60);

RankPlan PlanFor(const std::vector<SequencePlacement>& placements,
                 int32_t rank) {
  RankPlan plan;
  plan.digest = "device-check";
  plan.rank = rank;
  RankMicroBatch micro_batch;
  micro_batch.segments = RankSegments(placements, rank);
  for (const RankSegment& segment : micro_batch.segments) {
    micro_batch.row_count += segment.rows();
  }
  micro_batch.token_count = CountRows(placements);
  std::set<Block> blocks;
  for (const SequencePlacement& p : placements) {
    if (p.degree > 1) blocks.insert(p.block());
  }
  plan.blocks.assign(blocks.begin(), blocks.end());
  plan.batch_token_count = micro_batch.token_count;
  plan.micro_batches.push_back(std::move(micro_batch));
  return plan;
}

// Where each of the rank's rows is among those of all sequences.
std::vector<int64_t> GlobalRows(
    const std::vector<SequencePlacement>& placements,
    const std::vector<RankSegment>& segments) {
  std::vector<int64_t> begin(placements.size() + 1);
  for (const SequencePlacement& p : placements) {
    begin[static_cast<size_t>(p.sequence) + 1] = p.token_count;
  }
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  const std::vector<int32_t> sequences = exec::RowSequences(segments);
  const std::vector<int32_t> positions = exec::RowPositions(segments);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < sequences.size(); ++i) {
    rows.push_back(begin[static_cast<size_t>(sequences[i])] + positions[i]);
  }
  return rows;
}

// One rank, and what it computed.
class Rank {
 public:
  Rank(exec::Device* device, exec::AttentionBackend* backend,
       const exec::AttentionProblem& problem, exec::Exchange exchange)
      : device_(device),
        backend_(backend),
        problem_(problem),
        exchange_(exchange),
        rows_(device) {}

  Status Run(const exec::ExecutorResources& resources, const RankPlan& plan,
             const std::vector<int64_t>& global, const AttentionInputs& inputs,
             AttentionOutputs* outputs) {
    profile::OwnStream stream(device_);
    SKRULL_EXEC_RETURN_IF_ERROR(stream.Create());
    exec::BackwardTensors t;
    SKRULL_EXEC_RETURN_IF_ERROR(MakeTensors(global, inputs, &t));
    const auto executor = exec::Executor::Create(
        {.problem = problem_, .exchange = exchange_, .grad_comm_dtype = {}},
        resources);
    SKRULL_EXEC_RETURN_IF_ERROR(executor.status());
    const Result<exec::Step> step = (*executor)->Prepare(plan);
    SKRULL_EXEC_RETURN_IF_ERROR(step.status());
    SKRULL_EXEC_RETURN_IF_ERROR((*executor)->Forward(
        *step, 0, {t.q, t.k, t.v, t.o, t.lse}, stream.get()));
    SKRULL_EXEC_RETURN_IF_ERROR(
        (*executor)->Backward(*step, 0, t, stream.get()));
    SKRULL_EXEC_RETURN_IF_ERROR((*executor)->Wait(kLimit));
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Synchronize(stream.get()));
    for (const auto& [tensor, to] :
         {std::pair(&t.o, &outputs->o), std::pair(&t.lse, &outputs->lse),
          std::pair(&t.dq, &outputs->dq), std::pair(&t.dk, &outputs->dk),
          std::pair(&t.dv, &outputs->dv)}) {
      Result<Rows> rows = rows_.Download(*tensor);
      SKRULL_EXEC_RETURN_IF_ERROR(rows.status());
      *to = *std::move(rows);
    }
    return resources.agreement->Agree("done");
  }

 private:
  Status MakeTensors(const std::vector<int64_t>& global,
                     const AttentionInputs& inputs, exec::BackwardTensors* t) {
    const Behind tail = {.finite = backend_->kv_tail_rows(), .nan = kGuardRows};
    const Behind queries = {.finite = kGuardRows, .nan = 0};
    struct In {
      const Rows* rows;
      int32_t heads;
      Behind tail;
      Tensor* to;
    };
    for (const In& in : {In{&inputs.q, problem_.q_heads, queries, &t->q},
                         In{&inputs.d_o, problem_.q_heads, queries, &t->d_o},
                         In{&inputs.k, problem_.kv_heads, tail, &t->k},
                         In{&inputs.v, problem_.kv_heads, tail, &t->v}}) {
      const Result<Tensor> made =
          rows_.Upload(PickRows(*in.rows, global), problem_.dtype, in.heads,
                       problem_.head_dim, in.tail);
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      *in.to = *made;
    }
    const auto count = static_cast<int64_t>(global.size());
    for (const auto& [heads, to] : {std::pair(problem_.q_heads, &t->o),
                                    std::pair(problem_.q_heads, &t->dq),
                                    std::pair(problem_.kv_heads, &t->dk),
                                    std::pair(problem_.kv_heads, &t->dv)}) {
      const Result<Tensor> made =
          rows_.Poisoned(problem_.dtype, count, heads, problem_.head_dim);
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      *to = *made;
    }
    const Result<Tensor> lse = rows_.Poisoned(
        exec::AccumulatorOf(problem_.dtype), count, problem_.q_heads, 1);
    SKRULL_EXEC_RETURN_IF_ERROR(lse.status());
    t->lse = *lse;
    if (backend_->lse_order() == exec::LseOrder::kHeadMajor) {
      t->lse.row_stride = 1;
      t->lse.head_stride = count;
    }
    return {};
  }

  exec::Device* const device_;
  exec::AttentionBackend* const backend_;
  const exec::AttentionProblem problem_;
  const exec::Exchange exchange_;
  DeviceRows rows_;
};

// rows[i] of `part` is row global[i] of `all`.
void PutRows(const Rows& part, const std::vector<int64_t>& global, Rows* all) {
  for (size_t i = 0; i < global.size(); ++i) {
    std::copy_n(part.values.begin() + static_cast<ptrdiff_t>(i) * part.width,
                part.width, all->values.begin() + global[i] * part.width);
  }
}

}  // namespace

std::vector<SequencePlacement> MixedPlacements(int32_t ranks, int32_t tokens) {
  std::vector<SequencePlacement> placements;
  const auto add = [&](int32_t count, int32_t first, int32_t degree) {
    placements.push_back({.sequence = static_cast<int32_t>(placements.size()),
                          .token_count = count,
                          .first_rank = first,
                          .degree = degree});
  };
  add(2 * tokens + 5, 0, ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) add(tokens / 2 + rank, rank, 1);
  if (ranks > 2) {
    for (int32_t first = 0; first + 2 <= ranks; first += 2) {
      add(tokens - 1, first, 2);
    }
  }
  add(ranks + 1, 0, ranks);  // some chunks are empty
  return placements;
}

int64_t CountRows(const std::vector<SequencePlacement>& placements) {
  int64_t rows = 0;
  for (const SequencePlacement& p : placements) rows += p.token_count;
  return rows;
}

Result<AttentionOutputs> RunRanks(
    exec::AttentionBackend* backend, profile::RankPool* pool,
    const exec::AttentionProblem& problem, exec::Exchange exchange,
    const std::vector<SequencePlacement>& placements,
    const AttentionInputs& inputs) {
  const auto ranks = static_cast<size_t>(pool->size());
  std::vector<RankPlan> plans;
  std::vector<std::vector<int64_t>> global;
  for (int32_t r = 0; r < pool->size(); ++r) {
    plans.push_back(PlanFor(placements, r));
    global.push_back(
        GlobalRows(placements, plans.back().micro_batches[0].segments));
  }
  std::vector<AttentionOutputs> parts(ranks);
  std::vector<Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto rank = static_cast<int32_t>(r);
      const exec::ExecutorResources resources = {
          .device = pool->device(rank),
          .backend = backend,
          .communicators = pool->communicators(rank),
          .agreement = pool->agreement(rank)};
      statuses[r] = Rank(resources.device, backend, problem, exchange)
                        .Run(resources, plans[r], global[r], inputs, &parts[r]);
      if (!statuses[r].ok()) resources.communicators->Abort(statuses[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  SKRULL_EXEC_RETURN_IF_ERROR(profile::CauseOf(statuses));
  AttentionOutputs all = {.o = inputs.q,
                          .lse = {.width = problem.q_heads, .values = {}},
                          .dq = inputs.q,
                          .dk = inputs.k,
                          .dv = inputs.k};
  all.lse.values.resize(
      static_cast<size_t>(inputs.q.count() * problem.q_heads));
  for (size_t r = 0; r < ranks; ++r) {
    PutRows(parts[r].o, global[r], &all.o);
    PutRows(parts[r].lse, global[r], &all.lse);
    PutRows(parts[r].dq, global[r], &all.dq);
    PutRows(parts[r].dk, global[r], &all.dk);
    PutRows(parts[r].dv, global[r], &all.dv);
  }
  return all;
}

}  // namespace skrull::check
