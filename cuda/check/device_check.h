// Everything that one run on a device verifies and measures, in sections.
#ifndef SKRULL_CUDA_CHECK_DEVICE_CHECK_H_
#define SKRULL_CUDA_CHECK_DEVICE_CHECK_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skrull/cuda/attention_backend.h"
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
  std::vector<exec::DType> dtypes;    // correctness; the first for speed
  std::vector<int32_t> lengths;       // of correctness, whole sequences
  int32_t rank_tokens = 0;            // of virtual ranks, about
  std::vector<int32_t> speed_tokens;  // rising; the last is the long one
  int32_t pack_tokens = 0;            // of each packed sequence
  profile::MeasureOptions measure = {};

  // Those of Qwen2.5's 0.5B and 7B: 14/2 heads of 64 and 28/4 of 128; 512 to
  // 32768 tokens; and the host's few types.
  static CheckSizes Full(exec::MemoryKind memory);
  // A second or two on a CPU.
  static CheckSizes Tiny();
};

// What was found. `json` has an object for each section; `text` the same for a
// person; `failures` what is wrong, by section and case: results beyond their
// limits, and calls that failed.
struct CheckReport {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::string text = {};
  std::vector<std::string> failures = {};
};

// Runs on one device and backend. A failure ends its case, not the run.
// Sections, in this order: correctness (against float64), attention (TFLOP/s),
// rows (GB/s of pack, unpack and fold), overlap, virtual_ranks (the executor on
// 2, 4 and 8 ranks against float64; last, since ranks that fail leave the
// device failed). REQUIRES: both work in the same memory.
void RunDeviceCheck(exec::Device* device, exec::AttentionBackend* backend,
                    const CheckSizes& sizes, CheckReport* report);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_DEVICE_CHECK_H_
