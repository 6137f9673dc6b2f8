// What one run on a device and an attention backend verifies and measures, in
// sections.
#ifndef SKRULL_CUDA_CHECK_DEVICE_CHECK_H_
#define SKRULL_CUDA_CHECK_DEVICE_CHECK_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/check/budget.h"
#include "skrull/cuda/check/report.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/profile/measure.h"

namespace skrull::check {

// Query heads, key/value heads and their width.
struct Heads {
  int32_t q = 0;
  int32_t kv = 0;
  int32_t dim = 0;
};

// How large the cases are.
struct CheckSizes {
  std::vector<Heads> heads;
  std::vector<Heads> more_heads;      // of correctness besides: other groups
  std::vector<exec::DType> dtypes;    // correctness; the first for speed
  std::vector<int32_t> lengths;       // of correctness, whole sequences
  int32_t rank_tokens = 0;            // of virtual ranks, about
  std::vector<int32_t> speed_tokens;  // rising; the last is the long one
  int32_t pack_tokens = 0;            // of each packed sequence
  profile::MeasureOptions measure = {};

  // Those of Qwen2.5's 0.5B and 7B: 14/2 heads of 64 and 28/4 of 128; 512 to
  // 32768 tokens; and the host's few types. Besides, groups of one query head.
  static CheckSizes Full(exec::MemoryKind memory);
  // A second or two on a CPU; on a GPU small enough for compute-sanitizer.
  static CheckSizes Tiny(exec::MemoryKind memory);
};

// The targets of the figures that a run measures: of the dense time for zigzag
// shards over 8 ranks, of the exchange that local attention hides, of a plain
// copy's rate for packing and unpacking.
inline constexpr double kZigzagTarget = 0.85;
inline constexpr double kHiddenTarget = 0.9;
inline constexpr double kRowsTarget = 0.7;

// Runs on one device and backend. A failure ends its case, not the run.
// Sections, in this order; those that are not in `sections` are left out,
// unless that is empty:
//   correctness    against float64, with NaN behind tensors; equal bits of two
//                  runs where the backend can be deterministic
//   attention      TFLOP/s
//   zigzag         a rank's shards over 8 ranks against 1/8 of the dense time
//   rows           pack, unpack and fold against a plain copy
//   overlap        copies behind local attention
//   virtual_ranks  the executor on 2, 4 and 8 ranks against float64; last,
//                  since ranks that fail leave the device failed
// Cases of the four that measure are skipped, by name, once they do not fit
// into the budget. REQUIRES: both work in the same memory.
void RunDeviceCheck(exec::Device* device, exec::AttentionBackend* backend,
                    const CheckSizes& sizes,
                    const std::set<std::string>& sections, Budget* budget,
                    CheckReport* report);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_DEVICE_CHECK_H_
