#include "skrull/cuda/profile/cost.h"

#include <limits>
#include <set>
#include <string>

namespace skrull::profile {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

exec::Status CheckSize(const char* name, int64_t value) {
  if (value >= 1 && value <= kMost) return {};
  return exec::InvalidArgument(std::string(name) + " is " +
                               std::to_string(value) + ", not in [1, " +
                               std::to_string(kMost) + "]");
}

}  // namespace

exec::Status CheckModel(const ModelShape& model) {
  for (const auto& [name, value] :
       {std::pair("hidden_size", model.hidden_size),
        std::pair("layer_count", model.layer_count),
        std::pair("attention_head_count", model.attention_head_count),
        std::pair("kv_head_count", model.kv_head_count),
        std::pair("head_dim", model.head_dim),
        std::pair("intermediate_size", model.intermediate_size),
        std::pair("vocab_size", model.vocab_size)}) {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckSize(name, value));
  }
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckSize("attention_head_count * head_dim", model.q_size()));
  if (model.attention_head_count % model.kv_head_count != 0) {
    return exec::InvalidArgument("attention_head_count, " +
                                 std::to_string(model.attention_head_count) +
                                 ", is no multiple of kv_head_count, " +
                                 std::to_string(model.kv_head_count));
  }
  return {};
}

Unknowns ComputeTerms(const ModelShape& model, const CostForm& form,
                      std::span<const Share> shares) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto q = static_cast<double>(model.q_size());
  const auto kv = static_cast<double>(model.kv_size());
  const auto layers = static_cast<double>(model.layer_count);
  const auto intermediate = static_cast<double>(model.intermediate_size);
  const auto vocab = static_cast<double>(model.vocab_size);
  const double linear =
      form.pass_multiplier *
      (layers * 2 * (2 * h * q + 2 * h * kv + 3 * h * intermediate) +
       2 * h * vocab);
  const double attention = form.pass_multiplier * layers * 2 * q;
  Unknowns terms = {};
  for (const Share& share : shares) {
    const auto s = static_cast<double>(share.tokens);
    terms[kSecondsPerFlop] += (linear * s + attention * s * s) / share.degree;
    // attention / eff(S / g) is attention * (1 + half * g / S).
    terms[kShortLoss] += attention * s;
  }
  terms[kSecondsPerMicroBatch] = 1;
  return terms;
}

Unknowns ExchangeTerms(const ModelShape& model, const CostForm& form,
                       std::span<const Share> shares) {
  std::set<int32_t> degrees;
  double tokens = 0;
  for (const Share& share : shares) {
    if (share.degree == 1) continue;
    degrees.insert(share.degree);
    tokens += static_cast<double>(share.tokens);
  }
  const double calls =
      form.collectives_per_layer * static_cast<double>(model.layer_count);
  Unknowns terms = {};
  terms[kSecondsPerCollective] = calls * static_cast<double>(degrees.size());
  terms[kSecondsPerByte] = calls * tokens * 2 *
                           static_cast<double>(model.kv_size()) *
                           form.bytes_per_element;
  return terms;
}

}  // namespace skrull::profile
