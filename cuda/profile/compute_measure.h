// What a rank computes in a micro-batch of one mix of lengths: attention by the
// backend, linear layers by matrix products, each timed for one layer and
// summed over layers and passes as a trainer would run them.
#ifndef SKRULL_CUDA_PROFILE_COMPUTE_MEASURE_H_
#define SKRULL_CUDA_PROFILE_COMPUTE_MEASURE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/profile/calibrate.h"
#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/gemm.h"
#include "skrull/cuda/profile/linear_work.h"
#include "skrull/cuda/profile/measure.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// A mix of one rank's shares, and its name for residuals.
struct ComputeCase {
  std::string label = {};
  std::vector<Share> shares = {};
};

// Of powers of two of tokens, from `least_tokens` or the next one up to
// `most_tokens`: each alone; each as often as fits into most_tokens, packed;
// one of half of most_tokens with the rest in each shorter length; and, for
// each degree, each over so many ranks as long as a shard has least_tokens.
// Rows of a case never exceed most_tokens. REQUIRES: 1 <= least_tokens <=
// most_tokens, degrees >= 2.
std::vector<ComputeCase> ComputeCases(int64_t least_tokens, int64_t most_tokens,
                                      std::span<const int32_t> degrees);

struct ComputeTiming {
  MeasuredMicroBatch measured = {};  // compute_seconds: all layers and passes
  double forward_seconds = 0;        // of it, the first forward pass
  int64_t rows = 0;
  Timing attention_forward = {};  // of one layer
  Timing attention_backward = {};
  double attention_flops = 0;  // of one layer's forward pass
};

struct ComputeOptions {
  ModelShape model = {};
  exec::DType dtype = exec::DType::kBFloat16;
  bool deterministic = true;
  // Layers' forward passes run a second time in the backward pass.
  bool recomputes = false;
  MeasureOptions measure = {};
};

// Times every case on the stream. Errors: INVALID_ARGUMENT for a model that is
// none; those of device, backend and gemm, with the case's name.
exec::Result<std::vector<ComputeTiming>> MeasureCompute(
    exec::Device* device, exec::AttentionBackend* backend, Gemm* gemm,
    const ComputeOptions& options, std::span<const ComputeCase> cases,
    const Clock& clock, exec::Stream stream);

// The time of a backward pass over that of its forward pass: the median over
// the cases. REQUIRES: timings is not empty.
double BackwardForwardRatio(std::span<const ComputeTiming> timings);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_COMPUTE_MEASURE_H_
