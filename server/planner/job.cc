#include "skrull/planner/job.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

// Sizes of models, tokens and bytes above this are mistakes, and would make
// products of two of them overflow.
constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
// About a second of search.
constexpr int64_t kMaxSearchSteps = 10'000'000;
// As attention kernels index rows with int32.
constexpr int64_t kMaxBucket = (int64_t{1} << 31) - 1;

// Collects the first error; later checks are no-ops.
class FieldChecker {
 public:
  const absl::Status& status() const { return status_; }

  // `value` is required and in [low, high].
  void Required(const char* field, const std::optional<int64_t>& value,
                int64_t low, int64_t high) {
    if (!value) {
      Fail(field, absl::StrCat("is required, >= ", low));
    } else {
      Integer(field, *value, low, high);
    }
  }
  void Optional(const char* field, const std::optional<int64_t>& value,
                int64_t low, int64_t high) {
    if (value) Integer(field, *value, low, high);
  }
  void Integer(const std::string& field, int64_t value, int64_t low,
               int64_t high) {
    if (value < low || value > high) {
      Fail(field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
    }
  }
  // Finite and >= 0, or > 0 when `positive`.
  void Number(const std::string& field, double value, bool positive) {
    if (!std::isfinite(value) || value < 0 || (positive && value == 0)) {
      Fail(field, absl::StrCat(value, " is not a finite number ",
                               positive ? "> 0" : ">= 0"));
    }
  }
  void Fail(const std::string& field, const std::string& problem) {
    if (status_.ok()) status_ = FieldError(field, problem);
  }

 private:
  absl::Status status_;
};

void CheckModel(const CostSpec& cost, ModelSpec& model, FieldChecker& check) {
  check.Required("model.hidden_size", model.hidden_size, 1, kMaxSize);
  check.Required("model.layer_count", model.layer_count, 1, kMaxSize);
  check.Optional("model.attention_head_count", model.attention_head_count, 1,
                 kMaxSize);
  check.Optional("model.kv_head_count", model.kv_head_count, 1, kMaxSize);
  check.Optional("model.head_dim", model.head_dim, 1, kMaxSize);
  check.Optional("model.intermediate_size", model.intermediate_size, 1,
                 kMaxSize);
  check.Optional("model.vocab_size", model.vocab_size, 1, kMaxSize);
  if (!check.status().ok()) return;

  const auto require = [&](const char* field,
                           const std::optional<int64_t>& value,
                           const char* why) {
    if (!value) check.Fail(field, absl::StrCat("is required ", why));
  };
  if (!model.kv_head_count) {
    require("model.attention_head_count", model.attention_head_count,
            "when kv_head_count is unset");
    model.kv_head_count = model.attention_head_count;
  }
  if (!model.head_dim) {
    require("model.attention_head_count", model.attention_head_count,
            "when head_dim is unset");
    if (!check.status().ok()) return;
    if (*model.hidden_size % *model.attention_head_count != 0) {
      check.Fail("model.head_dim",
                 absl::StrCat("is required: hidden_size ", *model.hidden_size,
                              " is no multiple of attention_head_count ",
                              *model.attention_head_count));
      return;
    }
    model.head_dim = *model.hidden_size / *model.attention_head_count;
  }
  if (cost.flops_formula == FlopsFormula::kExact) {
    const char* why = "by FLOPS_FORMULA_EXACT";
    require("model.attention_head_count", model.attention_head_count, why);
    require("model.intermediate_size", model.intermediate_size, why);
    require("model.vocab_size", model.vocab_size, why);
  }
}

void CheckParallelism(const ParallelismSpec& p, FieldChecker& check) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  check.Integer("parallelism.dp_size", p.dp_size, 1, kMax);
  check.Integer("parallelism.cp_size", p.cp_size, 1, kMax);
  check.Integer("parallelism.tp_size", p.tp_size, 1, kMax);
  check.Integer("parallelism.pp_size", p.pp_size, 1, Job::kMaxStages);
  check.Integer("parallelism.ranks_per_node", p.ranks_per_node, 0, kMax);
  const int64_t ranks = int64_t{p.dp_size} * p.cp_size;
  if (ranks > Job::kMaxRanks) {
    check.Fail("parallelism", absl::StrCat("dp_size * cp_size = ", ranks,
                                           " ranks exceed ", Job::kMaxRanks));
  }
}

void CheckMemory(const MemorySpec& m, FieldChecker& check) {
  check.Optional("memory.bucket_size_tokens", m.bucket_size_tokens, 1,
                 kMaxBucket);
  check.Optional("memory.device_bytes", m.device_bytes, 1, kMaxBytes);
  check.Integer("memory.static_bytes", m.static_bytes, 0, kMaxBytes);
  if (m.bytes_per_token) {
    check.Number("memory.bytes_per_token", *m.bytes_per_token, true);
  }
  if (!(m.reserve_fraction >= 0 && m.reserve_fraction < 1)) {
    check.Fail("memory.reserve_fraction",
               absl::StrCat(m.reserve_fraction, " is not in [0, 1)"));
  }
  check.Number("memory.gather_bytes_per_token", m.gather_bytes_per_token,
               false);
  check.Integer("memory.max_sequences_per_micro_batch",
                m.max_sequences_per_micro_batch, 1, kMaxBucket);
  if (!m.bucket_size_tokens && (!m.device_bytes || !m.bytes_per_token)) {
    check.Fail("memory.bucket_size_tokens",
               "is required unless device_bytes and bytes_per_token are set");
  }
  if (m.gather_bytes_per_token > 0 && !m.bytes_per_token) {
    check.Fail("memory.bytes_per_token",
               "is required when gather_bytes_per_token is set");
  }
}

void CheckLink(const std::string& field, const LinkCost& link,
               FieldChecker& check) {
  check.Number(absl::StrCat(field, ".seconds_per_collective"),
               link.seconds_per_collective, false);
  check.Number(absl::StrCat(field, ".seconds_per_byte"), link.seconds_per_byte,
               false);
  for (size_t i = 0; i < link.table.size() && check.status().ok(); ++i) {
    const std::string at = absl::StrCat(field, ".table[", i, "]");
    check.Integer(absl::StrCat(at, ".bytes"), link.table[i].bytes, 0,
                  kMaxBytes);
    check.Number(absl::StrCat(at, ".seconds"), link.table[i].seconds, false);
    if (i > 0 && link.table[i].bytes <= link.table[i - 1].bytes) {
      check.Fail(absl::StrCat(at, ".bytes"),
                 absl::StrCat(link.table[i].bytes, " does not rise above ",
                              link.table[i - 1].bytes));
    }
  }
  const size_t n = link.table.size();
  if (n >= 2 && link.table[n - 1].seconds < link.table[n - 2].seconds) {
    check.Fail(absl::StrCat(field, ".table[", n - 1, "].seconds"),
               "is below the point before it: the cost of larger collectives "
               "would fall without end");
  }
}

void CheckCost(const CostSpec& c, FieldChecker& check) {
  check.Number("cost.seconds_per_flop", c.seconds_per_flop, true);
  check.Number("cost.pass_multiplier", c.pass_multiplier, true);
  check.Number("cost.seconds_per_micro_batch", c.seconds_per_micro_batch,
               false);
  check.Number("cost.efficiency_half_tokens", c.efficiency_half_tokens, false);
  check.Number("cost.collectives_per_layer", c.collectives_per_layer, false);
  check.Number("cost.bytes_per_element", c.bytes_per_element, true);
  check.Number("cost.backward_forward_ratio", c.backward_forward_ratio, true);
  CheckLink("cost.intra_node", c.intra_node, check);
  if (c.inter_node) CheckLink("cost.inter_node", *c.inter_node, check);
}

// True if `most`, of one sequence or micro-batch, is too large to be summed
// over the most that a batch can hold.
bool Overflows(double most) { return !std::isfinite(most * 1e9); }

// No collective of up to `bytes` takes longer.
double MostLinkSeconds(const LinkCost& link, double bytes) {
  if (link.table.empty()) {
    return link.seconds_per_collective + bytes * link.seconds_per_byte;
  }
  double most = 0;
  for (const LinkTablePoint& p : link.table) most = std::max(most, p.seconds);
  if (link.table.size() >= 2) {
    const LinkTablePoint& a = link.table[link.table.size() - 2];
    const LinkTablePoint& b = link.table.back();
    most += bytes *
            ((b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes));
  }
  return most;
}

}  // namespace

std::string PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kSkrull:
      return "POLICY_SKRULL";
    case Policy::kStaticCp:
      return "POLICY_STATIC_CP";
    case Policy::kPackedStaticCp:
      return "POLICY_PACKED_STATIC_CP";
    case Policy::kOptimized:
      return "POLICY_OPTIMIZED";
    case Policy::kDacpOnly:
      return "POLICY_DACP_ONLY";
    case Policy::kRoundRobin:
      return "POLICY_ROUND_ROBIN";
    case Policy::kSorted:
      return "POLICY_SORTED";
    case Policy::kChunkFlow:
      return "POLICY_CHUNK_FLOW";
  }
  return "POLICY_UNSPECIFIED";
}

std::vector<Policy> AllPolicies() {
  return {Policy::kSkrull,    Policy::kStaticCp, Policy::kPackedStaticCp,
          Policy::kOptimized, Policy::kDacpOnly, Policy::kRoundRobin,
          Policy::kSorted,    Policy::kChunkFlow};
}

absl::StatusOr<Job> Job::Create(const JobSpec& spec) {
  Job job(spec);
  FieldChecker check;
  CheckModel(spec.cost, job.spec_.model, check);
  CheckParallelism(spec.parallelism, check);
  CheckMemory(spec.memory, check);
  CheckCost(spec.cost, check);
  check.Integer("optimizer.search_steps", spec.optimizer.search_steps, 0,
                kMaxSearchSteps);
  if (spec.chunk_flow.chunk_size_tokens) {
    check.Integer("chunk_flow.chunk_size_tokens",
                  *spec.chunk_flow.chunk_size_tokens, 1,
                  std::numeric_limits<int32_t>::max());
  }
  check.Integer("chunk_flow.retained_chunks", spec.chunk_flow.retained_chunks,
                1, std::numeric_limits<int32_t>::max());
  if (!check.status().ok()) return check.status();

  const ModelSpec& model = job.spec_.model;
  const auto h = static_cast<double>(*model.hidden_size);
  const auto layers = static_cast<double>(*model.layer_count);
  const auto h_kv = static_cast<double>(*model.kv_head_count) *
                    static_cast<double>(*model.head_dim);
  if (spec.cost.flops_formula == FlopsFormula::kPaper) {
    job.linear_flops_ = layers * (20 * h * h + 4 * h * h_kv);
    job.attention_flops_ = layers * (4 * h);
  } else {
    const auto q = static_cast<double>(*model.attention_head_count) *
                   static_cast<double>(*model.head_dim);
    const auto intermediate = static_cast<double>(*model.intermediate_size);
    const double c1 = 2 * (2 * h * q + 2 * h * h_kv + 3 * h * intermediate);
    const double c0 = 2 * h * static_cast<double>(*model.vocab_size);
    job.linear_flops_ = layers * c1 + c0;
    job.attention_flops_ = layers * (2 * q);
  }
  job.kv_bytes_per_token_ = 2 * h_kv * spec.cost.bytes_per_element;

  const MemorySpec& memory = spec.memory;
  if (memory.device_bytes) {
    job.byte_budget_ = static_cast<double>(*memory.device_bytes) *
                           (1 - memory.reserve_fraction) -
                       static_cast<double>(memory.static_bytes);
  } else if (memory.bytes_per_token) {
    job.byte_budget_ = static_cast<double>(*memory.bucket_size_tokens) *
                       *memory.bytes_per_token;
  }
  if (memory.bucket_size_tokens) {
    job.bucket_size_ = *memory.bucket_size_tokens;
  } else {
    const double tokens =
        std::floor(job.byte_budget_ / *memory.bytes_per_token);
    if (!(tokens >= 1)) {
      return FieldError(
          "memory.device_bytes",
          absl::StrCat("leaves ", job.byte_budget_,
                       " bytes for activations, less than one token (",
                       *memory.bytes_per_token, " bytes)"));
    }
    job.bucket_size_ =
        static_cast<int64_t>(std::min(tokens, static_cast<double>(kMaxBucket)));
  }
  for (const int32_t degree :
       AllowedDegrees(spec.parallelism.block_scope, job.pool())) {
    job.longest_sequence_ =
        std::max(job.longest_sequence_, job.LongestOnDegree(degree));
  }
  if (job.longest_sequence_ < 1) {
    return FieldError("memory.device_bytes",
                      "leaves no room for a sequence of one token");
  }
  // The objective must stay finite for any batch that fits the types.
  const auto ranks = static_cast<double>(job.pool().ranks());
  const auto longest = static_cast<double>(job.longest_sequence_);
  const double flops = job.linear_flops_ * longest +
                       job.attention_flops_ * longest *
                           (longest + spec.cost.efficiency_half_tokens * ranks);
  if (Overflows(flops) || Overflows(flops * spec.cost.seconds_per_flop *
                                    spec.cost.pass_multiplier)) {
    return FieldError("cost.seconds_per_flop",
                      "makes the cost of a sequence overflow");
  }
  if (Overflows(spec.cost.seconds_per_micro_batch)) {
    return FieldError("cost.seconds_per_micro_batch",
                      "makes the cost of a step overflow");
  }
  const double bytes =
      static_cast<double>(job.bucket_size_) * ranks * job.kv_bytes_per_token_;
  const double collectives = layers * spec.cost.collectives_per_layer;
  if (Overflows(collectives * MostLinkSeconds(spec.cost.intra_node, bytes))) {
    return FieldError("cost.intra_node", "makes the cost of a step overflow");
  }
  if (Overflows(collectives * MostLinkSeconds(job.inter_node(), bytes))) {
    return FieldError("cost.inter_node", "makes the cost of a step overflow");
  }
  return job;
}

int64_t Job::LongestOnDegree(int32_t degree) const {
  const auto fits = [&](int64_t tokens) {
    return FitsRank(MaxBlockRows(tokens, degree), degree == 1 ? 0 : tokens);
  };
  // Bisection: holding a sequence implies holding every shorter one.
  int64_t low = 0;
  int64_t high = bucket_size_ * degree;
  if (fits(high)) return high;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace skrull
