// Validation of job specs and the numbers a Job derives.
#include "skrull/planner/job.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Valid, with every field set.
JobSpec FullSpec() {
  JobSpec spec = UnitSpec(2, 4, 100);
  spec.model = {.hidden_size = 128,
                .layer_count = 2,
                .attention_head_count = 4,
                .kv_head_count = 2,
                .head_dim = 32,
                .intermediate_size = 256,
                .vocab_size = 1000};
  spec.memory.bytes_per_token = 10;
  spec.memory.gather_bytes_per_token = 1;
  spec.cost.intra_node.table = {{8, 1e-5}, {16, 2e-5}};
  spec.cost.inter_node = LinkCost{};
  return spec;
}

struct BadField {
  std::string field;
  std::function<void(JobSpec&)> damage;
};

// One row a way to be out of range.
std::vector<BadField> BadFields() {
  std::vector<BadField> bad;
  const auto add = [&](std::string field, std::function<void(JobSpec&)> f) {
    bad.push_back({std::move(field), std::move(f)});
  };
  for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    add("model.hidden_size", [=](JobSpec& s) { s.model.hidden_size = value; });
    add("model.layer_count", [=](JobSpec& s) { s.model.layer_count = value; });
    add("model.attention_head_count",
        [=](JobSpec& s) { s.model.attention_head_count = value; });
    add("model.kv_head_count",
        [=](JobSpec& s) { s.model.kv_head_count = value; });
    add("model.head_dim", [=](JobSpec& s) { s.model.head_dim = value; });
    add("model.intermediate_size",
        [=](JobSpec& s) { s.model.intermediate_size = value; });
    add("model.vocab_size", [=](JobSpec& s) { s.model.vocab_size = value; });
    add("memory.bucket_size_tokens",
        [=](JobSpec& s) { s.memory.bucket_size_tokens = value; });
    add("memory.device_bytes",
        [=](JobSpec& s) { s.memory.device_bytes = value; });
    add("memory.max_sequences_per_micro_batch",
        [=](JobSpec& s) { s.memory.max_sequences_per_micro_batch = value; });
  }
  for (const int64_t value : {int64_t{-1}, int64_t{10'000'001}}) {
    add("optimizer.search_steps",
        [=](JobSpec& s) { s.optimizer.search_steps = value; });
  }
  add("model.hidden_size", [](JobSpec& s) { s.model.hidden_size.reset(); });
  add("model.layer_count", [](JobSpec& s) { s.model.layer_count.reset(); });
  for (const int32_t value : {0, -1, INT32_MIN}) {
    add("parallelism.dp_size",
        [=](JobSpec& s) { s.parallelism.dp_size = value; });
    add("parallelism.cp_size",
        [=](JobSpec& s) { s.parallelism.cp_size = value; });
    add("parallelism.tp_size",
        [=](JobSpec& s) { s.parallelism.tp_size = value; });
    add("parallelism.pp_size",
        [=](JobSpec& s) { s.parallelism.pp_size = value; });
  }
  add("parallelism.ranks_per_node",
      [](JobSpec& s) { s.parallelism.ranks_per_node = -1; });
  add("memory.static_bytes", [](JobSpec& s) { s.memory.static_bytes = -1; });
  for (const double value : {-0.1, 1.0, 2.0, kNan, kInf, -kInf}) {
    add("memory.reserve_fraction",
        [=](JobSpec& s) { s.memory.reserve_fraction = value; });
  }
  const auto real = [&](const std::string& field, bool zero_is_bad,
                        const std::function<void(JobSpec&, double)>& set) {
    for (const double value : {-1.0, kNan, kInf, -kInf}) {
      add(field, [=](JobSpec& s) { set(s, value); });
    }
    if (zero_is_bad) add(field, [=](JobSpec& s) { set(s, 0.0); });
  };
  real("memory.bytes_per_token", true,
       [](JobSpec& s, double v) { s.memory.bytes_per_token = v; });
  real("memory.gather_bytes_per_token", false,
       [](JobSpec& s, double v) { s.memory.gather_bytes_per_token = v; });
  real("cost.seconds_per_flop", true,
       [](JobSpec& s, double v) { s.cost.seconds_per_flop = v; });
  real("cost.pass_multiplier", true,
       [](JobSpec& s, double v) { s.cost.pass_multiplier = v; });
  real("cost.seconds_per_micro_batch", false,
       [](JobSpec& s, double v) { s.cost.seconds_per_micro_batch = v; });
  real("cost.efficiency_half_tokens", false,
       [](JobSpec& s, double v) { s.cost.efficiency_half_tokens = v; });
  real("cost.collectives_per_layer", false,
       [](JobSpec& s, double v) { s.cost.collectives_per_layer = v; });
  real("cost.bytes_per_element", true,
       [](JobSpec& s, double v) { s.cost.bytes_per_element = v; });
  real("cost.intra_node.seconds_per_collective", false,
       [](JobSpec& s, double v) {
         s.cost.intra_node.seconds_per_collective = v;
       });
  real("cost.intra_node.seconds_per_byte", false,
       [](JobSpec& s, double v) { s.cost.intra_node.seconds_per_byte = v; });
  real("cost.inter_node.seconds_per_collective", false,
       [](JobSpec& s, double v) {
         s.cost.inter_node->seconds_per_collective = v;
       });
  real("cost.inter_node.seconds_per_byte", false,
       [](JobSpec& s, double v) { s.cost.inter_node->seconds_per_byte = v; });
  real("cost.intra_node.table[0].seconds", false,
       [](JobSpec& s, double v) { s.cost.intra_node.table[0].seconds = v; });
  real("cost.inter_node.table[0].seconds", false,
       [](JobSpec& s, double v) { s.cost.inter_node->table = {{1, v}}; });
  add("cost.intra_node.table[0].bytes",
      [](JobSpec& s) { s.cost.intra_node.table[0].bytes = -1; });
  add("cost.intra_node.table[1].bytes",
      [](JobSpec& s) { s.cost.intra_node.table[1].bytes = 8; });
  add("cost.intra_node.table[1].seconds",
      [](JobSpec& s) { s.cost.intra_node.table[1].seconds = 1e-6; });
  return bad;
}

TEST_CASE("Job: a full spec is accepted", "[planner][job]") {
  REQUIRE(Job::Create(FullSpec()).ok());
}

TEST_CASE("Job: case 18, every field out of range is refused by name",
          "[planner][job]") {
  for (const BadField& bad : BadFields()) {
    JobSpec spec = FullSpec();
    bad.damage(spec);
    CAPTURE(bad.field, testing::ToText(spec));
    const absl::StatusOr<Job> job = Job::Create(spec);
    REQUIRE(job.status().code() == absl::StatusCode::kInvalidArgument);
    const std::optional<ErrorDetail> detail = GetErrorDetail(job.status());
    REQUIRE(detail.has_value());
    CHECK(detail->reason == ErrorReason::kFieldInvalid);
    CHECK(detail->field == bad.field);
    CHECK(std::string(job.status().message()).find(bad.field) == 0);
  }
}

TEST_CASE("Job: fields that others need are required by name",
          "[planner][job]") {
  const std::vector<BadField> missing = {
      {"model.attention_head_count",
       [](JobSpec& s) {
         s.model.attention_head_count.reset();
         s.model.kv_head_count.reset();
       }},
      {"model.attention_head_count",
       [](JobSpec& s) {
         s.model.attention_head_count.reset();
         s.model.head_dim.reset();
       }},
      {"model.head_dim",
       [](JobSpec& s) {
         s.model.hidden_size = 130;
         s.model.head_dim.reset();
       }},
      {"model.attention_head_count",
       [](JobSpec& s) {
         s.cost.flops_formula = FlopsFormula::kExact;
         s.model.attention_head_count.reset();
       }},
      {"model.intermediate_size",
       [](JobSpec& s) {
         s.cost.flops_formula = FlopsFormula::kExact;
         s.model.intermediate_size.reset();
       }},
      {"model.vocab_size",
       [](JobSpec& s) {
         s.cost.flops_formula = FlopsFormula::kExact;
         s.model.vocab_size.reset();
       }},
      {"memory.bucket_size_tokens",
       [](JobSpec& s) { s.memory.bucket_size_tokens.reset(); }},
      {"memory.bytes_per_token",
       [](JobSpec& s) { s.memory.bytes_per_token.reset(); }},
      {"memory.device_bytes",
       [](JobSpec& s) {  // leaves less than one token
         s.memory.bucket_size_tokens.reset();
         s.memory.device_bytes = 100;
         s.memory.static_bytes = 91;
       }},
      {"memory.device_bytes",
       [](JobSpec& s) {
         s.memory.bucket_size_tokens.reset();
         s.memory.device_bytes = 100;
         s.memory.static_bytes = 200;
       }},
  };
  for (const BadField& bad : missing) {
    JobSpec spec = FullSpec();
    bad.damage(spec);
    CAPTURE(bad.field, testing::ToText(spec));
    const absl::StatusOr<Job> job = Job::Create(spec);
    REQUIRE(job.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(GetErrorDetail(job.status())->field == bad.field);
  }
}

TEST_CASE("Job: pools over the limit are refused, without overflow",
          "[planner][job]") {
  JobSpec spec = FullSpec();
  spec.parallelism.dp_size = INT32_MAX;
  spec.parallelism.cp_size = INT32_MAX;
  CHECK(Job::Create(spec).status().code() ==
        absl::StatusCode::kInvalidArgument);
  spec.parallelism.dp_size = static_cast<int32_t>(Job::kMaxRanks);
  spec.parallelism.cp_size = 1;
  CHECK(Job::Create(spec).ok());
  spec.parallelism.cp_size = 2;
  CHECK_FALSE(Job::Create(spec).ok());
}

TEST_CASE("Job: costs that overflow a double are refused, naming the field",
          "[planner][job]") {
  const std::vector<BadField> huge = {
      {"cost.seconds_per_flop",
       [](JobSpec& s) { s.cost.seconds_per_flop = 1e307; }},
      {"cost.seconds_per_flop",
       [](JobSpec& s) { s.cost.efficiency_half_tokens = 1e307; }},
      {"cost.seconds_per_micro_batch",
       [](JobSpec& s) { s.cost.seconds_per_micro_batch = 1e308; }},
      {"cost.intra_node",
       [](JobSpec& s) { s.cost.intra_node = {1e308, 0, {}}; }},
      {"cost.intra_node",
       [](JobSpec& s) { s.cost.intra_node = {0, 1e304, {}}; }},
      {"cost.inter_node",
       [](JobSpec& s) { s.cost.inter_node = LinkCost{0, 1e304, {}}; }},
      {"cost.intra_node",
       [](JobSpec& s) { s.cost.intra_node.table[1].seconds = 1e306; }},
      {"cost.intra_node",
       [](JobSpec& s) { s.cost.collectives_per_layer = 1e308; }},
  };
  for (const BadField& bad : huge) {
    JobSpec spec = FullSpec();
    spec.cost.intra_node.seconds_per_collective = 1;
    spec.cost.inter_node->seconds_per_collective = 1;
    bad.damage(spec);
    CAPTURE(testing::ToText(spec));
    const absl::StatusOr<Job> job = Job::Create(spec);
    REQUIRE_FALSE(job.ok());
    CHECK(GetErrorDetail(job.status())->field == bad.field);
  }
}

TEST_CASE("Job: defaults of the model", "[planner][job]") {
  JobSpec spec = UnitSpec(1, 1, 10);
  spec.model.hidden_size = 6;
  spec.model.layer_count = 2;
  spec.model.attention_head_count = 3;
  const Job job = MakeJob(spec);
  // h_kv = 3 heads * 2.
  CHECK(job.kv_bytes_per_token() == 2 * 6 * 2);
  CHECK(job.linear_flops() == 2 * (20 * 36 + 4 * 6 * 6));
  CHECK(job.attention_flops() == 2 * 4 * 6);
}

TEST_CASE("Job: the exact formula", "[planner][job]") {
  JobSpec spec = FullSpec();
  spec.cost.flops_formula = FlopsFormula::kExact;
  const Job job = MakeJob(spec);
  // q = 128, h_kv = 64.
  const double c1 = 2.0 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256);
  CHECK(job.linear_flops() == 2 * c1 + 2 * 128 * 1000);
  CHECK(job.attention_flops() == 2 * 2 * 128);
}

TEST_CASE("Job: the bucket is derived when it is not given", "[planner][job]") {
  JobSpec spec = UnitSpec(1, 1, 1);
  spec.memory.bucket_size_tokens.reset();
  spec.memory.device_bytes = 1000;
  spec.memory.reserve_fraction = 0.25;
  spec.memory.static_bytes = 100;
  spec.memory.bytes_per_token = 7;
  CHECK(MakeJob(spec).bucket_size() == 92);  // floor(650 / 7)
  spec.memory.bucket_size_tokens = 5;        // given: used as it is
  CHECK(MakeJob(spec).bucket_size() == 5);
}

TEST_CASE("Job: memory with gathered K/V", "[planner][job]") {
  JobSpec spec = UnitSpec(1, 4, 10);
  CHECK_FALSE(MakeJob(spec).models_gather());
  CHECK(MakeJob(spec).FitsRank(10, 1'000'000'000));
  CHECK_FALSE(MakeJob(spec).FitsRank(11, 0));
  spec.memory.bytes_per_token = 2;
  spec.memory.gather_bytes_per_token = 0.5;
  const Job job = MakeJob(spec);
  CHECK(job.models_gather());
  CHECK(job.byte_budget() == 20);
  CHECK(job.FitsRank(10, 0));
  CHECK(job.FitsRank(8, 8));
  CHECK_FALSE(job.FitsRank(8, 9));
  // 4 ranks: 20 tokens take 5 rows and 10 + 10 bytes; 21 take 6 rows.
  CHECK(job.LongestOnDegree(1) == 10);
  CHECK(job.LongestOnDegree(4) == 20);
  CHECK(job.longest_sequence() == 20);
}

TEST_CASE("Job: the longest sequence of each degree, by linear scan",
          "[planner][job]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int scanned = 0;
  while (scanned < 400) {
    const JobSpec spec = testing::RandomSpec(random);
    const Job job = MakeJob(spec);
    if (job.bucket_size() > 200) continue;
    ++scanned;
    int64_t longest = 0;
    for (const int32_t degree :
         AllowedDegrees(spec.parallelism.block_scope, job.pool())) {
      int64_t most = 0;
      for (int64_t s = 1; s <= job.bucket_size() * degree; ++s) {
        const int64_t rows = (s + degree - 1) / degree;
        if (job.FitsRank(rows, degree == 1 ? 0 : s)) most = s;
      }
      CAPTURE(degree, testing::ToText(spec));
      REQUIRE(job.LongestOnDegree(degree) == most);
      longest = std::max(longest, most);
    }
    REQUIRE(job.longest_sequence() == longest);
  }
}

TEST_CASE("Job: unset inter_node is intra_node, a set one stands alone",
          "[planner][job]") {
  JobSpec spec = UnitSpec(1, 2, 10);
  spec.cost.intra_node.seconds_per_collective = 3;
  CHECK(MakeJob(spec).inter_node().seconds_per_collective == 3);
  spec.cost.inter_node = LinkCost{};
  CHECK(MakeJob(spec).inter_node().seconds_per_collective == 0);
}

TEST_CASE("Job: names of policies", "[planner][job]") {
  CHECK(MakeJob(UnitSpec(1, 1, 1)).policy() == Policy::kOptimized);
  std::vector<std::string> names;
  for (const Policy policy : AllPolicies()) names.push_back(PolicyName(policy));
  CHECK(names ==
        std::vector<std::string>{"POLICY_SKRULL", "POLICY_STATIC_CP",
                                 "POLICY_PACKED_STATIC_CP", "POLICY_OPTIMIZED",
                                 "POLICY_DACP_ONLY", "POLICY_ROUND_ROBIN",
                                 "POLICY_SORTED", "POLICY_CHUNK_FLOW"});
}

}  // namespace
}  // namespace skrull
