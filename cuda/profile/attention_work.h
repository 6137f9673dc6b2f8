// The attention of one layer of one rank's micro-batch, without the exchange:
// the calls that the executor makes, on memory of its own.
#ifndef SKRULL_CUDA_PROFILE_ATTENTION_WORK_H_
#define SKRULL_CUDA_PROFILE_ATTENTION_WORK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// One call for whole sequences, one for a rank's zigzag shards of the others.
// By default the first rank of each block: ranks differ by a row at most. Used
// by one thread at a time.
class AttentionWork {
 public:
  // `device` and `backend` outlive it. Local shares come first in memory
  // whatever their order. Whole sequences are rank 0's, and `rank` >= 0 has no
  // part of blocks of so few ranks. Errors: INVALID_ARGUMENT for shares whose
  // rows do not fit int32, or of which the rank has none; UNSUPPORTED or
  // PLAN_BUILD_FAILED by the backend; those of the device.
  static exec::Result<std::unique_ptr<AttentionWork>> Create(
      exec::Device* device, exec::AttentionBackend* backend,
      const exec::AttentionProblem& problem, std::span<const Share> shares,
      int32_t rank = 0);

  // Rows of the rank.
  int64_t rows() const { return rows_; }
  // Of one forward pass: 4 * q_heads * head_dim for each causal pair of a query
  // and a key.
  double forward_flops() const { return forward_flops_; }

  // Asynchronous. Backward reads what an earlier Forward wrote.
  exec::Status Forward(exec::Stream stream);
  exec::Status Backward(exec::Stream stream);

 private:
  // One call: its segments and tensors.
  struct Call {
    exec::SegmentList list;
    exec::Segments segments;
    exec::Buffer segment_memory;
    std::vector<exec::Buffer> memory;
    exec::Tensor q, k, v, o, lse, d_o, dq, dk, dv;
  };

  AttentionWork(exec::Device* device, exec::AttentionBackend* backend,
                const exec::AttentionProblem& problem)
      : device_(device), backend_(backend), problem_(problem) {}

  exec::Status Add(exec::SegmentList list);
  exec::Result<exec::Tensor> Take(Call* call, exec::DType dtype, int64_t rows,
                                  int64_t tail_rows, int32_t heads,
                                  int32_t dim);
  exec::Status MakeTensors(Call* call);

  exec::Device* const device_;
  exec::AttentionBackend* const backend_;
  const exec::AttentionProblem problem_;
  int64_t rows_ = 0;
  double forward_flops_ = 0;
  std::vector<std::unique_ptr<Call>> calls_;
  exec::Buffer workspace_;
};

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_ATTENTION_WORK_H_
