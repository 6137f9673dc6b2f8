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

// One layer's attention of a rank's part of these shares, as AttentionWork has
// it. Errors: those of AttentionWork and of what it calls.
exec::Result<AttentionSpeed> MeasureAttention(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem,
    std::span<const profile::Share> shares, int32_t rank,
    const profile::MeasureOptions& options);

// How much of the ideal a rank's shards keep: 1 if they take 1/ranks of the
// dense time.
double ShardEfficiency(const profile::Timing& dense,
                       const profile::Timing& shard, int32_t ranks);

// K and V rows that the executor moves for a sequence of `tokens` on a block of
// `ranks`, on its first rank.
struct RowSpeed {
  struct Kernel {
    profile::Timing kernel;
    profile::Timing copy;  // a plain copy that reads and writes as much
    int64_t bytes = 0;     // read and written

    double gigabytes_per_second() const;
    // Its rate as a share of the copy's.
    double share() const;
  };
  Kernel pack, unpack, fold;
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
