// JobSpec, its text form and job names.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

constexpr int kMaxLabels = 64;
constexpr size_t kMaxLabelKeyBytes = 63;
constexpr size_t kMaxLabelValueBytes = 255;
constexpr size_t kMaxJobNameBytes = 128;
constexpr int kMaxTextDepth = 32;

absl::Status UnknownEnumValue(const std::string& field, int value) {
  return FieldError(field, absl::StrCat("unknown value ", value));
}

absl::StatusOr<BlockScope> BlockScopeFromProto(v1::BlockScope scope) {
  switch (scope) {
    case v1::BLOCK_SCOPE_UNSPECIFIED:
    case v1::BLOCK_SCOPE_GROUP:
      return BlockScope::kGroup;
    case v1::BLOCK_SCOPE_SUBGROUP:
      return BlockScope::kSubgroup;
    case v1::BLOCK_SCOPE_POOL:
      return BlockScope::kPool;
    default:
      return UnknownEnumValue("parallelism.block_scope", scope);
  }
}

absl::StatusOr<FlopsFormula> FlopsFormulaFromProto(v1::FlopsFormula formula) {
  switch (formula) {
    case v1::FLOPS_FORMULA_UNSPECIFIED:
    case v1::FLOPS_FORMULA_PAPER:
      return FlopsFormula::kPaper;
    case v1::FLOPS_FORMULA_EXACT:
      return FlopsFormula::kExact;
    default:
      return UnknownEnumValue("cost.flops_formula", formula);
  }
}

absl::StatusOr<OverlapScope> OverlapScopeFromProto(v1::OverlapScope scope) {
  switch (scope) {
    case v1::OVERLAP_SCOPE_UNSPECIFIED:
    case v1::OVERLAP_SCOPE_LAYER:
      return OverlapScope::kLayer;
    case v1::OVERLAP_SCOPE_ATTENTION:
      return OverlapScope::kAttention;
    default:
      return UnknownEnumValue("cost.overlap_scope", scope);
  }
}

ModelSpec ModelFromProto(const v1::ModelSpec& proto) {
  ModelSpec model;
  if (proto.has_hidden_size()) model.hidden_size = proto.hidden_size();
  if (proto.has_layer_count()) model.layer_count = proto.layer_count();
  if (proto.has_attention_head_count()) {
    model.attention_head_count = proto.attention_head_count();
  }
  if (proto.has_kv_head_count()) model.kv_head_count = proto.kv_head_count();
  if (proto.has_head_dim()) model.head_dim = proto.head_dim();
  if (proto.has_intermediate_size()) {
    model.intermediate_size = proto.intermediate_size();
  }
  if (proto.has_vocab_size()) model.vocab_size = proto.vocab_size();
  return model;
}

absl::StatusOr<ParallelismSpec> ParallelismFromProto(
    const v1::ParallelismSpec& proto) {
  ParallelismSpec parallelism;
  if (proto.has_dp_size()) parallelism.dp_size = proto.dp_size();
  if (proto.has_cp_size()) parallelism.cp_size = proto.cp_size();
  if (proto.has_tp_size()) parallelism.tp_size = proto.tp_size();
  if (proto.has_pp_size()) parallelism.pp_size = proto.pp_size();
  if (proto.has_ranks_per_node()) {
    parallelism.ranks_per_node = proto.ranks_per_node();
  }
  absl::StatusOr<BlockScope> scope = BlockScopeFromProto(proto.block_scope());
  if (!scope.ok()) return scope.status();
  parallelism.block_scope = *scope;
  parallelism.uniform_micro_batch_count = proto.uniform_micro_batch_count();
  return parallelism;
}

MemorySpec MemoryFromProto(const v1::MemorySpec& proto) {
  MemorySpec memory;
  if (proto.has_bucket_size_tokens()) {
    memory.bucket_size_tokens = proto.bucket_size_tokens();
  }
  if (proto.has_device_bytes()) memory.device_bytes = proto.device_bytes();
  if (proto.has_static_bytes()) memory.static_bytes = proto.static_bytes();
  if (proto.has_bytes_per_token()) {
    memory.bytes_per_token = proto.bytes_per_token();
  }
  if (proto.has_reserve_fraction()) {
    memory.reserve_fraction = proto.reserve_fraction();
  }
  if (proto.has_gather_bytes_per_token()) {
    memory.gather_bytes_per_token = proto.gather_bytes_per_token();
  }
  if (proto.has_max_sequences_per_micro_batch()) {
    memory.max_sequences_per_micro_batch =
        proto.max_sequences_per_micro_batch();
  }
  return memory;
}

LinkCost LinkCostFromProto(const v1::LinkCost& proto) {
  LinkCost link;
  if (proto.has_seconds_per_collective()) {
    link.seconds_per_collective = proto.seconds_per_collective();
  }
  if (proto.has_seconds_per_byte()) {
    link.seconds_per_byte = proto.seconds_per_byte();
  }
  link.table.reserve(static_cast<size_t>(proto.table_size()));
  for (const v1::LinkTablePoint& point : proto.table()) {
    link.table.push_back({.bytes = point.bytes(), .seconds = point.seconds()});
  }
  return link;
}

absl::StatusOr<CostSpec> CostFromProto(const v1::CostSpec& proto) {
  CostSpec cost;
  absl::StatusOr<FlopsFormula> formula =
      FlopsFormulaFromProto(proto.flops_formula());
  if (!formula.ok()) return formula.status();
  cost.flops_formula = *formula;
  absl::StatusOr<OverlapScope> overlap =
      OverlapScopeFromProto(proto.overlap_scope());
  if (!overlap.ok()) return overlap.status();
  cost.overlap_scope = *overlap;
  if (proto.has_seconds_per_flop()) {
    cost.seconds_per_flop = proto.seconds_per_flop();
  }
  if (proto.has_pass_multiplier()) {
    cost.pass_multiplier = proto.pass_multiplier();
  }
  if (proto.has_seconds_per_micro_batch()) {
    cost.seconds_per_micro_batch = proto.seconds_per_micro_batch();
  }
  if (proto.has_efficiency_half_tokens()) {
    cost.efficiency_half_tokens = proto.efficiency_half_tokens();
  }
  if (proto.has_collectives_per_layer()) {
    cost.collectives_per_layer = proto.collectives_per_layer();
  }
  if (proto.has_bytes_per_element()) {
    cost.bytes_per_element = proto.bytes_per_element();
  }
  if (proto.has_backward_forward_ratio()) {
    cost.backward_forward_ratio = proto.backward_forward_ratio();
  }
  cost.intra_node = LinkCostFromProto(proto.intra_node());
  if (proto.has_inter_node()) {
    cost.inter_node = LinkCostFromProto(proto.inter_node());
  }
  return cost;
}

absl::Status ValidateLabels(const v1::JobSpec& spec) {
  if (spec.labels_size() > kMaxLabels) {
    return FieldError("labels", absl::StrCat(spec.labels_size(),
                                             " entries, at most ", kMaxLabels));
  }
  for (const auto& [key, value] : spec.labels()) {
    if (key.empty() || key.size() > kMaxLabelKeyBytes) {
      return FieldError("labels",
                        absl::StrCat("a key of ", key.size(), " bytes, not 1..",
                                     kMaxLabelKeyBytes));
    }
    if (value.size() > kMaxLabelValueBytes) {
      return FieldError(
          "labels",
          absl::StrCat("the value of \"", absl::CHexEscape(key), "\" has ",
                       value.size(), " bytes, at most ", kMaxLabelValueBytes));
    }
  }
  return absl::OkStatus();
}

constexpr int32_t kMostAttempts = 32;

absl::Status ValidateCalibration(const v1::CalibrationSpec& calibration) {
  if (!calibration.has_max_attempts()) return absl::OkStatus();
  const int32_t attempts = calibration.max_attempts();
  if (attempts >= 1 && attempts <= kMostAttempts) return absl::OkStatus();
  return FieldError(
      "calibration.max_attempts",
      absl::StrCat(attempts, " is not in [1, ", kMostAttempts, "]"));
}

// Keeps the first error; lines and columns count from 1.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? message
                     : absl::StrCat("line ", line + 1, ", column ", column + 1,
                                    ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

absl::StatusOr<std::optional<Policy>> PolicyFromProto(
    v1::Policy policy, const std::string& field) {
  switch (policy) {
    case v1::POLICY_UNSPECIFIED:
      return std::optional<Policy>();
    case v1::POLICY_SKRULL:
      return std::optional<Policy>(Policy::kSkrull);
    case v1::POLICY_STATIC_CP:
      return std::optional<Policy>(Policy::kStaticCp);
    case v1::POLICY_PACKED_STATIC_CP:
      return std::optional<Policy>(Policy::kPackedStaticCp);
    case v1::POLICY_OPTIMIZED:
      return std::optional<Policy>(Policy::kOptimized);
    case v1::POLICY_DACP_ONLY:
      return std::optional<Policy>(Policy::kDacpOnly);
    case v1::POLICY_ROUND_ROBIN:
      return std::optional<Policy>(Policy::kRoundRobin);
    case v1::POLICY_SORTED:
      return std::optional<Policy>(Policy::kSorted);
    case v1::POLICY_CHUNK_FLOW:
      return std::optional<Policy>(Policy::kChunkFlow);
    default:
      return UnknownEnumValue(field, policy);
  }
}

v1::Policy PolicyToProto(Policy policy) {
  switch (policy) {
    case Policy::kSkrull:
      return v1::POLICY_SKRULL;
    case Policy::kStaticCp:
      return v1::POLICY_STATIC_CP;
    case Policy::kPackedStaticCp:
      return v1::POLICY_PACKED_STATIC_CP;
    case Policy::kOptimized:
      return v1::POLICY_OPTIMIZED;
    case Policy::kDacpOnly:
      return v1::POLICY_DACP_ONLY;
    case Policy::kRoundRobin:
      return v1::POLICY_ROUND_ROBIN;
    case Policy::kSorted:
      return v1::POLICY_SORTED;
    case Policy::kChunkFlow:
      return v1::POLICY_CHUNK_FLOW;
  }
  return v1::POLICY_UNSPECIFIED;
}

absl::StatusOr<Job> JobFromProto(const v1::JobSpec& proto) {
  JobSpec spec;
  spec.model = ModelFromProto(proto.model());
  absl::StatusOr<ParallelismSpec> parallelism =
      ParallelismFromProto(proto.parallelism());
  if (!parallelism.ok()) return parallelism.status();
  spec.parallelism = *parallelism;
  spec.memory = MemoryFromProto(proto.memory());
  absl::StatusOr<CostSpec> cost = CostFromProto(proto.cost());
  if (!cost.ok()) return cost.status();
  spec.cost = *std::move(cost);
  if (proto.optimizer().has_search_steps()) {
    spec.optimizer.search_steps = proto.optimizer().search_steps();
  }
  if (proto.heuristic().has_roll_back()) {
    spec.heuristic.roll_back = proto.heuristic().roll_back();
  }
  if (proto.chunk_flow().has_chunk_size_tokens()) {
    spec.chunk_flow.chunk_size_tokens = proto.chunk_flow().chunk_size_tokens();
  }
  if (proto.chunk_flow().has_retained_chunks()) {
    spec.chunk_flow.retained_chunks = proto.chunk_flow().retained_chunks();
  }
  absl::StatusOr<std::optional<Policy>> policy =
      PolicyFromProto(proto.policy(), "policy");
  if (!policy.ok()) return policy.status();
  spec.policy = *policy;
  absl::Status labels = ValidateLabels(proto);
  if (!labels.ok()) return labels;
  absl::Status calibration = ValidateCalibration(proto.calibration());
  if (!calibration.ok()) return calibration;
  return Job::Create(spec);
}

absl::StatusOr<v1::JobSpec> ParseJobSpecText(const std::string& text) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxTextDepth);
  v1::JobSpec spec;
  if (!parser.ParseFromString(text, &spec)) {
    return FieldError("job_spec", error.text());
  }
  return spec;
}

absl::Status ValidateJobName(const std::string& name,
                             const std::string& field) {
  if (name.empty()) return FieldError(field, "empty");
  if (name.size() > kMaxJobNameBytes) {
    return FieldError(field, absl::StrCat(name.size(), " characters, at most ",
                                          kMaxJobNameBytes));
  }
  const auto is_alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z');
  };
  const auto is_allowed = [&](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
  };
  if (!is_alphanumeric(name.front()) ||
      !std::all_of(name.begin(), name.end(), is_allowed)) {
    return FieldError(
        field, absl::StrCat("\"", absl::CHexEscape(name),
                            "\" is not made of [A-Za-z0-9._-], starting with a "
                            "letter or digit"));
  }
  return absl::OkStatus();
}

}  // namespace skrull
