// How fast the pieces of an executor's layer are on a device.
#ifndef SKRULL_CUDA_CHECK_SPEED_H_
#define SKRULL_CUDA_CHECK_SPEED_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/measure.h"
#include "skrull/cuda/status.h"

namespace skrull::check {

struct AttentionSpeed {
  profile::Timing forward, backward;
  double forward_flops = 0;  // causal pairs only

  double forward_teraflops() const;
  double backward_teraflops() const;  // 2.5 forward passes
};

// One layer's attention of these shares. Errors: those of AttentionWork and of
// what it calls.
exec::Result<AttentionSpeed> MeasureAttention(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem,
    std::span<const profile::Share> shares,
    const profile::MeasureOptions& options);

// K and V rows that the executor moves for a sequence of `tokens` on a block of
// `ranks`, on its first rank.
struct RowSpeed {
  profile::Timing pack, unpack, fold;
  int64_t pack_bytes = 0;  // read and written, as below
  int64_t unpack_bytes = 0;
  int64_t fold_bytes = 0;
};
exec::Result<RowSpeed> MeasureRows(exec::Device* device,
                                   const exec::AttentionProblem& problem,
                                   int32_t tokens, int32_t ranks,
                                   const profile::MeasureOptions& options);

// Local attention of `tokens` while a second stream copies rows of K and V, so
// many times that both take about as long.
struct OverlapSpeed {
  double attention_seconds = 0;
  double copy_seconds = 0;
  double both_seconds = 0;

  // The share of the shorter one that the longer one hid: 1 if both together
  // take as long as the longer one, 0 if they take as long as one after the
  // other.
  double efficiency() const;
};
exec::Result<OverlapSpeed> MeasureOverlap(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem, int32_t tokens,
    const profile::MeasureOptions& options);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_SPEED_H_
