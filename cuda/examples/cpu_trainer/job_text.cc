#include "skrull/cuda/examples/cpu_trainer/job_text.h"

#include "absl/strings/str_format.h"

namespace skrull::examples {

std::string JobText(const ModelConfig& model, const JobShape& shape,
                    const Coefficients& cost) {
  return absl::StrFormat(
      R"(model {
  hidden_size: %d
  layer_count: %d
  attention_head_count: %d
  kv_head_count: %d
  head_dim: %d
  intermediate_size: %d
  vocab_size: %d
}
parallelism { dp_size: %d cp_size: %d block_scope: BLOCK_SCOPE_POOL }
memory { bucket_size_tokens: %d }
cost {
  flops_formula: FLOPS_FORMULA_EXACT
  overlap_scope: OVERLAP_SCOPE_ATTENTION
  pass_multiplier: 3
  collectives_per_layer: 3
  bytes_per_element: 4
  seconds_per_flop: %.17g
  efficiency_half_tokens: %.17g
  seconds_per_micro_batch: %.17g
  intra_node { seconds_per_collective: %.17g seconds_per_byte: %.17g }
}
)",
      model.hidden_size, model.layer_count, model.q_heads, model.kv_heads,
      model.head_dim, model.intermediate_size, model.vocab_size, shape.dp_size,
      shape.cp_size, shape.bucket_size_tokens, cost.seconds_per_flop,
      cost.efficiency_half_tokens, cost.seconds_per_micro_batch,
      cost.seconds_per_collective, cost.seconds_per_byte);
}

}  // namespace skrull::examples
