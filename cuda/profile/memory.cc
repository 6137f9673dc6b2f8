#include "skrull/cuda/profile/memory.h"

namespace skrull::profile {

double ActivationBytesPerToken(const ModelShape& model, exec::DType dtype,
                               bool recomputes) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto projected =
      2 * static_cast<double>(model.q_size() + model.kv_size());
  const auto mlp = 3 * static_cast<double>(model.intermediate_size);
  const auto layers = static_cast<double>(model.layer_count);
  const auto bytes = static_cast<double>(exec::SizeOf(dtype));
  const auto lse = static_cast<double>(
      exec::SizeOf(exec::AccumulatorOf(dtype)) * model.attention_head_count);
  const double kept = bytes * (4 * hidden + projected + mlp) + lse;
  const double at_work = bytes * (2 * hidden + projected + mlp);
  if (recomputes) return layers * bytes * hidden + kept + at_work;
  return layers * kept + at_work;
}

double GatherBytesPerToken(const ModelShape& model, exec::DType dtype) {
  return 4.0 * 2 * static_cast<double>(model.kv_size() * exec::SizeOf(dtype));
}

}  // namespace skrull::profile
