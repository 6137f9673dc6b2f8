#include "skrull/cuda/profile/attention_work.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "skrull/cuda/list_upload.h"
#include "skrull/cuda/profile/device_data.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;
using exec::Tensor;

// The share of a rank of a plan that places all sequences from rank 0 on.
Result<RankMicroBatch> MicroBatchOf(std::span<const Share> shares,
                                    int32_t rank) {
  RankMicroBatch micro_batch;
  std::vector<SequencePlacement> placements;
  for (const Share& share : shares) {
    if (share.tokens < 1 || share.degree < 1 ||
        share.tokens > std::numeric_limits<int32_t>::max()) {
      return exec::InvalidArgument(
          "a share of " + std::to_string(share.tokens) + " tokens over " +
          std::to_string(share.degree) + " ranks");
    }
    placements.push_back({.sequence = static_cast<int32_t>(placements.size()),
                          .token_count = static_cast<int32_t>(share.tokens),
                          .first_rank = 0,
                          .degree = share.degree});
    micro_batch.token_count += share.tokens;
  }
  micro_batch.segments = RankSegments(placements, rank);
  if (!shares.empty() && micro_batch.segments.empty()) {
    return exec::InvalidArgument("no share is of rank " + std::to_string(rank));
  }
  for (const RankSegment& segment : micro_batch.segments) {
    micro_batch.row_count += segment.rows();
  }
  micro_batch.token_weight = 1;
  return micro_batch;
}

// Pairs of a query and a key that it sees, bottom-right causal.
double CausalPairs(const exec::SegmentList& list) {
  double pairs = 0;
  for (size_t i = 0; i + 1 < list.cu_q.size(); ++i) {
    const double q = list.cu_q[i + 1] - list.cu_q[i];
    const double kv = list.cu_kv[i + 1] - list.cu_kv[i];
    pairs += q * (kv - q) + q * (q + 1) / 2;
  }
  return pairs;
}

}  // namespace

Result<std::unique_ptr<AttentionWork>> AttentionWork::Create(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem, std::span<const Share> shares,
    int32_t rank) {
  if (backend->memory() != device->memory()) {
    return exec::InvalidArgument("backend " + std::string(backend->name()) +
                                 " does not work in memory of device " +
                                 std::string(device->name()));
  }
  for (const exec::Pass pass : {exec::Pass::kForward, exec::Pass::kBackward}) {
    SKRULL_EXEC_RETURN_IF_ERROR(backend->Supports(problem, pass));
  }
  const Result<RankMicroBatch> micro_batch = MicroBatchOf(shares, rank);
  SKRULL_EXEC_RETURN_IF_ERROR(micro_batch.status());
  Result<exec::MicroBatchMaps> maps = exec::BuildMaps(*micro_batch, rank, 1);
  SKRULL_EXEC_RETURN_IF_ERROR(maps.status());
  std::unique_ptr<AttentionWork> work(
      new AttentionWork(device, backend, problem));
  work->rows_ = maps->rows;
  for (exec::SegmentList* list : {&maps->local, &maps->sharded}) {
    if (list->empty()) continue;
    SKRULL_EXEC_RETURN_IF_ERROR(
        device->AsCurrent([&] { return work->Add(std::move(*list)); }));
  }
  return work;
}

Status AttentionWork::Add(exec::SegmentList list) {
  forward_flops_ +=
      4.0 * problem_.q_heads * problem_.head_dim * CausalPairs(list);
  auto call = std::make_unique<Call>();
  call->list = std::move(list);
  exec::internal::ListUpload upload;
  upload.AddSegments(call->list, &call->segments);
  SKRULL_EXEC_RETURN_IF_ERROR(upload.Send(device_, &call->segment_memory));
  for (const exec::Pass pass : {exec::Pass::kForward, exec::Pass::kBackward}) {
    const Result<int64_t> bytes =
        backend_->Prepare(problem_, call->segments.bounds, pass);
    SKRULL_EXEC_RETURN_IF_ERROR(bytes.status());
    if (workspace_.bytes() >= *bytes) continue;
    Result<exec::Buffer> workspace = device_->Allocate(*bytes);
    SKRULL_EXEC_RETURN_IF_ERROR(workspace.status());
    workspace_ = *std::move(workspace);
  }
  SKRULL_EXEC_RETURN_IF_ERROR(MakeTensors(call.get()));
  calls_.push_back(std::move(call));
  return {};
}

Result<Tensor> AttentionWork::Take(Call* call, exec::DType dtype, int64_t rows,
                                   int64_t tail_rows, int32_t heads,
                                   int32_t dim) {
  Result<exec::Buffer> buffer =
      RandomBuffer(device_, dtype, (rows + tail_rows) * heads * dim);
  SKRULL_EXEC_RETURN_IF_ERROR(buffer.status());
  call->memory.push_back(*std::move(buffer));
  return exec::DenseTensor(call->memory.back().data(), dtype, rows, heads, dim);
}

Status AttentionWork::MakeTensors(Call* call) {
  const exec::SegmentBounds& bounds = call->segments.bounds;
  const int64_t tail = backend_->kv_tail_rows();
  struct Wanted {
    Tensor* tensor;
    int64_t rows;
    int64_t tail;
    int32_t heads;
  };
  for (const Wanted& wanted :
       {Wanted{&call->q, bounds.total_q, 0, problem_.q_heads},
        Wanted{&call->o, bounds.total_q, 0, problem_.q_heads},
        Wanted{&call->d_o, bounds.total_q, 0, problem_.q_heads},
        Wanted{&call->dq, bounds.total_q, 0, problem_.q_heads},
        Wanted{&call->k, bounds.total_kv, tail, problem_.kv_heads},
        Wanted{&call->v, bounds.total_kv, tail, problem_.kv_heads},
        Wanted{&call->dk, bounds.total_kv, 0, problem_.kv_heads},
        Wanted{&call->dv, bounds.total_kv, 0, problem_.kv_heads}}) {
    const Result<Tensor> taken =
        Take(call, problem_.dtype, wanted.rows, wanted.tail, wanted.heads,
             problem_.head_dim);
    SKRULL_EXEC_RETURN_IF_ERROR(taken.status());
    *wanted.tensor = *taken;
  }
  const Result<Tensor> lse = Take(call, exec::AccumulatorOf(problem_.dtype),
                                  bounds.total_q, 0, problem_.q_heads, 1);
  SKRULL_EXEC_RETURN_IF_ERROR(lse.status());
  call->lse = *lse;
  if (backend_->lse_order() == exec::LseOrder::kHeadMajor) {
    call->lse.row_stride = 1;
    call->lse.head_stride = bounds.total_q;
  }
  return {};
}

Status AttentionWork::Forward(exec::Stream stream) {
  return device_->AsCurrent([&]() -> Status {
    for (const auto& call : calls_) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          backend_->Forward({.problem = problem_,
                             .segments = call->segments,
                             .q = call->q,
                             .k = call->k,
                             .v = call->v,
                             .o = call->o,
                             .lse = call->lse},
                            {workspace_.data(), workspace_.bytes()}, stream));
    }
    return {};
  });
}

Status AttentionWork::Backward(exec::Stream stream) {
  return device_->AsCurrent([&]() -> Status {
    for (const auto& call : calls_) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          backend_->Backward({.problem = problem_,
                              .segments = call->segments,
                              .q = call->q,
                              .k = call->k,
                              .v = call->v,
                              .o = call->o,
                              .d_o = call->d_o,
                              .lse = call->lse,
                              .dq = call->dq,
                              .dk = call->dk,
                              .dv = call->dv},
                             {workspace_.data(), workspace_.bytes()}, stream));
    }
    return {};
  });
}

}  // namespace skrull::profile
