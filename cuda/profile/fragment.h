// What was fitted, as parts of the text form of skrull.v1.JobSpec: what a job
// file holds beside its `parallelism`. Numbers are written so that they are
// read back the same.
#ifndef SKRULL_CUDA_PROFILE_FRAGMENT_H_
#define SKRULL_CUDA_PROFILE_FRAGMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skrull/cuda/profile/cost.h"

namespace skrull::profile {

// One point of skrull.v1.LinkCost.table.
struct LinkPoint {
  int64_t bytes = 0;
  double seconds = 0;
};

// skrull.v1.LinkCost: two constants, or a table in their place.
struct LinkNumbers {
  double seconds_per_collective = 0;
  double seconds_per_byte = 0;
  std::vector<LinkPoint> table = {};  // bytes rise strictly
};

// skrull.v1.CostSpec, with FLOPS_FORMULA_EXACT and OVERLAP_SCOPE_ATTENTION,
// which is what the executor does. What is unset is left to its default.
struct CostNumbers {
  CostForm form = {};
  double seconds_per_flop = 0;
  double efficiency_half_tokens = 0;
  double seconds_per_micro_batch = 0;
  std::optional<double> backward_forward_ratio = {};
  std::optional<LinkNumbers> intra_node = {};
  std::optional<LinkNumbers> inter_node = {};
};

// skrull.v1.MemorySpec. What is unset is left out.
struct MemoryNumbers {
  std::optional<int64_t> bucket_size_tokens = {};
  std::optional<int64_t> device_bytes = {};
  std::optional<int64_t> static_bytes = {};
  std::optional<double> bytes_per_token = {};
  std::optional<double> gather_bytes_per_token = {};
  std::optional<double> reserve_fraction = {};
};

// "model { ... }\n" and so on.
std::string ModelText(const ModelShape& model);
std::string CostText(const CostNumbers& cost);
std::string MemoryText(const MemoryNumbers& memory);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_FRAGMENT_H_
