#include "skrull/cuda/profile/fragment.h"

#include <array>
#include <charconv>

namespace skrull::profile {
namespace {

// The shortest text that is read back as the same number.
std::string Number(double value) {
  std::array<char, 32> text;
  const auto result =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

// Fields of a message, indented by two spaces each level.
class Fields {
 public:
  explicit Fields(const std::string& indent) : indent_(indent) {}

  void Add(const char* name, int64_t value) {
    Line(name, std::to_string(value));
  }
  void Add(const char* name, double value) { Line(name, Number(value)); }
  template <class T>
  void Add(const char* name, const std::optional<T>& value) {
    if (value) Add(name, *value);
  }
  void AddName(const char* name, const char* value) { Line(name, value); }
  void AddText(const std::string& text) { text_ += text; }

  std::string text() const { return text_; }

 private:
  void Line(const char* name, const std::string& value) {
    text_ += indent_ + name + ": " + value + "\n";
  }

  const std::string indent_;
  std::string text_;
};

std::string LinkText(const char* name, const std::optional<LinkNumbers>& link) {
  if (!link) return {};
  Fields fields("    ");
  if (link->table.empty()) {
    fields.Add("seconds_per_collective", link->seconds_per_collective);
    fields.Add("seconds_per_byte", link->seconds_per_byte);
  }
  for (const LinkPoint& point : link->table) {
    fields.AddText("    table { bytes: " + std::to_string(point.bytes) +
                   " seconds: " + Number(point.seconds) + " }\n");
  }
  return std::string("  ") + name + " {\n" + fields.text() + "  }\n";
}

}  // namespace

std::string ModelText(const ModelShape& model) {
  Fields fields("  ");
  fields.Add("hidden_size", model.hidden_size);
  fields.Add("layer_count", model.layer_count);
  fields.Add("attention_head_count", model.attention_head_count);
  fields.Add("kv_head_count", model.kv_head_count);
  fields.Add("head_dim", model.head_dim);
  fields.Add("intermediate_size", model.intermediate_size);
  fields.Add("vocab_size", model.vocab_size);
  return "model {\n" + fields.text() + "}\n";
}

std::string CostText(const CostNumbers& cost) {
  Fields fields("  ");
  fields.AddName("flops_formula", "FLOPS_FORMULA_EXACT");
  fields.AddName("overlap_scope", "OVERLAP_SCOPE_ATTENTION");
  fields.Add("pass_multiplier", cost.form.pass_multiplier);
  fields.Add("collectives_per_layer", cost.form.collectives_per_layer);
  fields.Add("bytes_per_element", cost.form.bytes_per_element);
  fields.Add("seconds_per_flop", cost.seconds_per_flop);
  fields.Add("efficiency_half_tokens", cost.efficiency_half_tokens);
  fields.Add("seconds_per_micro_batch", cost.seconds_per_micro_batch);
  fields.Add("backward_forward_ratio", cost.backward_forward_ratio);
  fields.AddText(LinkText("intra_node", cost.intra_node));
  fields.AddText(LinkText("inter_node", cost.inter_node));
  return "cost {\n" + fields.text() + "}\n";
}

std::string MemoryText(const MemoryNumbers& memory) {
  Fields fields("  ");
  fields.Add("bucket_size_tokens", memory.bucket_size_tokens);
  fields.Add("device_bytes", memory.device_bytes);
  fields.Add("static_bytes", memory.static_bytes);
  fields.Add("bytes_per_token", memory.bytes_per_token);
  fields.Add("gather_bytes_per_token", memory.gather_bytes_per_token);
  fields.Add("reserve_fraction", memory.reserve_fraction);
  return "memory {\n" + fields.text() + "}\n";
}

}  // namespace skrull::profile
