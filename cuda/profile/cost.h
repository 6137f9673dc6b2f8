// The planner's cost model from the other side: what a rank did in one
// micro-batch, as the numbers that its coefficients multiply. The formulas are
// those of docs/concepts.md, "Cost", with FLOPS_FORMULA_EXACT; a test compares
// them with the planner's own.
#ifndef SKRULL_CUDA_PROFILE_COST_H_
#define SKRULL_CUDA_PROFILE_COST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/cuda/status.h"
#include "skrull/planner/least_squares.h"

namespace skrull::profile {

// The sizes of skrull.v1.ModelSpec, by its names. All >= 1;
// attention_head_count is a multiple of kv_head_count.
struct ModelShape {
  int64_t hidden_size = 0;
  int64_t layer_count = 0;
  int64_t attention_head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;

  int64_t q_size() const { return attention_head_count * head_dim; }
  int64_t kv_size() const { return kv_head_count * head_dim; }
};

// INVALID_ARGUMENT naming the field that is out of range: sizes are at most
// 2^31 - 1, and so are q_size() and kv_size().
exec::Status CheckModel(const ModelShape& model);

// How a trainer runs layers: the numbers of skrull.v1.CostSpec that follow from
// that and are not fitted.
struct CostForm {
  double pass_multiplier = 3;        // forward 1, backward 2; recomputation 1
  double collectives_per_layer = 3;  // K, V in each pass, and their gradients
  double bytes_per_element = 2;      // of K and V on the wire

  // What the executor and a trainer around it do: K and V are gathered in each
  // forward pass, recomputation included, and in the backward pass, which also
  // reduces their gradients.
  static CostForm Of(bool recomputes, int64_t bytes_per_element) {
    return {.pass_multiplier = recomputes ? 4.0 : 3.0,
            .collectives_per_layer = recomputes ? 4.0 : 3.0,
            .bytes_per_element = static_cast<double>(bytes_per_element)};
  }
};

// A rank's share of one sequence: a whole one, or one over a block.
struct Share {
  int64_t tokens = 0;  // of the whole sequence, >= 1
  int32_t degree = 1;  // ranks of the block, >= 1

  friend bool operator==(const Share&, const Share&) = default;
};

// The coefficients of skrull.v1.CostSpec that are fitted. The defaults are
// those of no machine in particular.
struct Coefficients {
  double seconds_per_flop = 2e-10;
  double efficiency_half_tokens = 0;
  double seconds_per_micro_batch = 1e-3;
  double seconds_per_collective = 1e-5;
  double seconds_per_byte = 5e-10;
};

// Unknowns of a rank's computing in one micro-batch.
enum ComputeUnknown : size_t {
  kSecondsPerFlop = 0,
  kShortLoss = 1,  // seconds_per_flop * efficiency_half_tokens
  kSecondsPerMicroBatch = 2,
};
// What they multiply. REQUIRES: shares is not empty. O(shares).
Unknowns ComputeTerms(const ModelShape& model, const CostForm& form,
                      std::span<const Share> shares);

// Unknowns of collectives over one link.
enum LinkUnknown : size_t { kSecondsPerCollective = 0, kSecondsPerByte = 1 };
// What they multiply in one micro-batch's exchange. All zero if nothing is
// sharded. Shares of equal degree are on one block: a rank is in one allowed
// block of each size (layout.h). O(shares).
Unknowns ExchangeTerms(const ModelShape& model, const CostForm& form,
                       std::span<const Share> shares);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_COST_H_
