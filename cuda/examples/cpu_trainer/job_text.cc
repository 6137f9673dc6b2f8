#include "skrull/cuda/examples/cpu_trainer/job_text.h"

#include "absl/strings/str_format.h"
#include "skrull/cuda/profile/fragment.h"
#include "skrull/cuda/tensor.h"

namespace skrull::examples {

profile::ModelShape ShapeOf(const ModelConfig& model) {
  return {.hidden_size = model.hidden_size,
          .layer_count = model.layer_count,
          .attention_head_count = model.q_heads,
          .kv_head_count = model.kv_heads,
          .head_dim = model.head_dim,
          .intermediate_size = model.intermediate_size,
          .vocab_size = model.vocab_size};
}

profile::CostForm TrainerForm() {
  return profile::CostForm::Of(false, exec::SizeOf(exec::DType::kFloat32));
}

std::string JobText(const ModelConfig& model, const JobShape& shape,
                    const profile::Coefficients& cost) {
  return absl::StrFormat(
      "%s"
      "parallelism { dp_size: %d cp_size: %d block_scope: BLOCK_SCOPE_POOL }\n"
      "memory { bucket_size_tokens: %d }\n"
      "%s",
      profile::ModelText(ShapeOf(model)), shape.dp_size, shape.cp_size,
      shape.bucket_size_tokens,
      profile::CostText(
          {.form = TrainerForm(),
           .seconds_per_flop = cost.seconds_per_flop,
           .efficiency_half_tokens = cost.efficiency_half_tokens,
           .seconds_per_micro_batch = cost.seconds_per_micro_batch,
           .intra_node = {
               {.seconds_per_collective = cost.seconds_per_collective,
                .seconds_per_byte = cost.seconds_per_byte}}}));
}

}  // namespace skrull::examples
