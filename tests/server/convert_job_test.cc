// JobSpec from the wire and from text, job names, policies.
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Valid, with every field set.
v1::JobSpec FullSpec() {
  return ParseJobSpecText(R"pb(
           model {
             hidden_size: 128
             layer_count: 2
             attention_head_count: 4
             kv_head_count: 2
             head_dim: 32
             intermediate_size: 256
             vocab_size: 1000
           }
           parallelism {
             dp_size: 2
             cp_size: 4
             tp_size: 2
             pp_size: 3
             ranks_per_node: 4
             block_scope: BLOCK_SCOPE_POOL
             uniform_micro_batch_count: true
           }
           memory {
             bucket_size_tokens: 100
             device_bytes: 80000000
             static_bytes: 1000
             bytes_per_token: 10
             reserve_fraction: 0.1
             gather_bytes_per_token: 1
             max_sequences_per_micro_batch: 50
           }
           cost {
             flops_formula: FLOPS_FORMULA_EXACT
             overlap_scope: OVERLAP_SCOPE_ATTENTION
             seconds_per_flop: 1e-12
             pass_multiplier: 3
             seconds_per_micro_batch: 0.01
             efficiency_half_tokens: 64
             collectives_per_layer: 2
             bytes_per_element: 4
             backward_forward_ratio: 1.5
             intra_node {
               seconds_per_collective: 1e-5
               seconds_per_byte: 1e-11
               table { bytes: 0 seconds: 1e-5 }
               table { bytes: 8 seconds: 2e-5 }
             }
             inter_node {
               seconds_per_collective: 2e-5
               seconds_per_byte: 2e-11
               table { bytes: 1 seconds: 3e-5 }
             }
           }
           policy: POLICY_PACKED_STATIC_CP
           optimizer { search_steps: 77 }
           heuristic { roll_back: false }
           chunk_flow { chunk_size_tokens: 64 retained_chunks: 3 }
           calibration {
             refit: false
             roll_back_out_of_memory: false
             max_attempts: 5
           }
           labels { key: "owner" value: "tests" }
         )pb")
      .value();
}

// The wire form of a native spec, written field by field for these tests.
v1::LinkCost ToProto(const LinkCost& link) {
  v1::LinkCost proto;
  proto.set_seconds_per_collective(link.seconds_per_collective);
  proto.set_seconds_per_byte(link.seconds_per_byte);
  for (const LinkTablePoint& point : link.table) {
    v1::LinkTablePoint* out = proto.add_table();
    out->set_bytes(point.bytes);
    out->set_seconds(point.seconds);
  }
  return proto;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec proto;
  v1::ModelSpec& model = *proto.mutable_model();
  if (spec.model.hidden_size) model.set_hidden_size(*spec.model.hidden_size);
  if (spec.model.layer_count) model.set_layer_count(*spec.model.layer_count);
  if (spec.model.attention_head_count) {
    model.set_attention_head_count(*spec.model.attention_head_count);
  }
  if (spec.model.kv_head_count) {
    model.set_kv_head_count(*spec.model.kv_head_count);
  }
  if (spec.model.head_dim) model.set_head_dim(*spec.model.head_dim);
  if (spec.model.intermediate_size) {
    model.set_intermediate_size(*spec.model.intermediate_size);
  }
  if (spec.model.vocab_size) model.set_vocab_size(*spec.model.vocab_size);
  v1::ParallelismSpec& parallelism = *proto.mutable_parallelism();
  parallelism.set_dp_size(spec.parallelism.dp_size);
  parallelism.set_cp_size(spec.parallelism.cp_size);
  parallelism.set_tp_size(spec.parallelism.tp_size);
  parallelism.set_pp_size(spec.parallelism.pp_size);
  parallelism.set_ranks_per_node(spec.parallelism.ranks_per_node);
  // The wire's enums count from 1, 0 being unset.
  parallelism.set_block_scope(static_cast<v1::BlockScope>(
      1 + static_cast<int>(spec.parallelism.block_scope)));
  parallelism.set_uniform_micro_batch_count(
      spec.parallelism.uniform_micro_batch_count);
  v1::MemorySpec& memory = *proto.mutable_memory();
  if (spec.memory.bucket_size_tokens) {
    memory.set_bucket_size_tokens(*spec.memory.bucket_size_tokens);
  }
  if (spec.memory.device_bytes) {
    memory.set_device_bytes(*spec.memory.device_bytes);
  }
  memory.set_static_bytes(spec.memory.static_bytes);
  if (spec.memory.bytes_per_token) {
    memory.set_bytes_per_token(*spec.memory.bytes_per_token);
  }
  memory.set_reserve_fraction(spec.memory.reserve_fraction);
  memory.set_gather_bytes_per_token(spec.memory.gather_bytes_per_token);
  memory.set_max_sequences_per_micro_batch(
      spec.memory.max_sequences_per_micro_batch);
  v1::CostSpec& cost = *proto.mutable_cost();
  cost.set_flops_formula(static_cast<v1::FlopsFormula>(
      1 + static_cast<int>(spec.cost.flops_formula)));
  cost.set_overlap_scope(static_cast<v1::OverlapScope>(
      1 + static_cast<int>(spec.cost.overlap_scope)));
  cost.set_seconds_per_flop(spec.cost.seconds_per_flop);
  cost.set_pass_multiplier(spec.cost.pass_multiplier);
  cost.set_seconds_per_micro_batch(spec.cost.seconds_per_micro_batch);
  cost.set_efficiency_half_tokens(spec.cost.efficiency_half_tokens);
  cost.set_collectives_per_layer(spec.cost.collectives_per_layer);
  cost.set_bytes_per_element(spec.cost.bytes_per_element);
  *cost.mutable_intra_node() = ToProto(spec.cost.intra_node);
  if (spec.cost.inter_node) {
    *cost.mutable_inter_node() = ToProto(*spec.cost.inter_node);
  }
  if (spec.policy) {
    proto.set_policy(
        static_cast<v1::Policy>(1 + static_cast<int>(*spec.policy)));
  }
  return proto;
}

// Calls `visit` with the path, the message and the field of every field of
// numbers and enums in `message`, inside repeated messages too.
template <typename Visit>
void ForEachNumber(Message* message, const std::string& prefix,
                   const Visit& visit) {
  const Reflection* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    const std::string path = prefix + field->name();
    if (field->is_map()) continue;
    if (field->is_repeated()) {
      for (int j = 0; j < reflection->FieldSize(*message, field); ++j) {
        ForEachNumber(reflection->MutableRepeatedMessage(message, field, j),
                      path + "[" + std::to_string(j) + "].", visit);
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ForEachNumber(reflection->MutableMessage(message, field), path + ".",
                    visit);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) {
      visit(path, message, field);
    }
  }
}

TEST_CASE("JobFromProto: names each field that is out of range by its path",
          "[server][convert]") {
  v1::JobSpec spec = FullSpec();
  REQUIRE(JobFromProto(spec).ok());
  int fields = 0;
  ForEachNumber(
      &spec, "",
      [&](const std::string& path, Message* message,
          const FieldDescriptor* field) {
        CAPTURE(path);
        ++fields;
        const Reflection* reflection = message->GetReflection();
        const auto refused = [&] {
          const absl::Status status = JobFromProto(spec).status();
          CHECK(status.code() == absl::StatusCode::kInvalidArgument);
          const std::optional<ErrorDetail> detail = GetErrorDetail(status);
          REQUIRE(detail);
          CHECK(detail->reason == ErrorReason::kFieldInvalid);
          CHECK(detail->field == path);
          CHECK_THAT(std::string(status.message()), Contains(path));
        };
        switch (field->cpp_type()) {
          case FieldDescriptor::CPPTYPE_INT32: {
            const int32_t old = reflection->GetInt32(*message, field);
            for (int32_t bad : {-1, std::numeric_limits<int32_t>::min()}) {
              reflection->SetInt32(message, field, bad);
              refused();
            }
            reflection->SetInt32(message, field, old);
            break;
          }
          case FieldDescriptor::CPPTYPE_INT64: {
            const int64_t old = reflection->GetInt64(*message, field);
            for (int64_t bad :
                 {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
              reflection->SetInt64(message, field, bad);
              refused();
            }
            reflection->SetInt64(message, field, old);
            break;
          }
          case FieldDescriptor::CPPTYPE_DOUBLE: {
            const double old = reflection->GetDouble(*message, field);
            for (double bad : {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(), -1.0}) {
              reflection->SetDouble(message, field, bad);
              refused();
            }
            reflection->SetDouble(message, field, old);
            break;
          }
          case FieldDescriptor::CPPTYPE_ENUM: {
            const int old = reflection->GetEnumValue(*message, field);
            for (int bad : {-1, 99, std::numeric_limits<int>::max()}) {
              reflection->SetEnumValue(message, field, bad);
              refused();
            }
            reflection->SetEnumValue(message, field, old);
            break;
          }
          default:
            FAIL("a kind of field this test does not know");
        }
      });
  CHECK(fields > 35);
  CHECK(JobFromProto(spec).ok());
}

TEST_CASE("JobFromProto: carries every value over", "[server][convert]") {
  const Job job = JobFromProto(FullSpec()).value();
  CHECK(job.parallelism().dp_size == 2);
  CHECK(job.parallelism().cp_size == 4);
  CHECK(job.parallelism().tp_size == 2);
  CHECK(job.parallelism().pp_size == 3);
  CHECK(job.parallelism().ranks_per_node == 4);
  CHECK(job.parallelism().block_scope == BlockScope::kPool);
  CHECK(job.parallelism().uniform_micro_batch_count);
  CHECK(job.layer_count() == 2);
  CHECK(job.bucket_size() == 100);
  CHECK(job.max_sequences_per_micro_batch() == 50);
  CHECK(job.search_steps() == 77);
  CHECK(job.bytes_per_token() == 10);
  CHECK(job.gather_bytes_per_token() == 1);
  CHECK(job.byte_budget() == Approx(80000000 * 0.9 - 1000));
  CHECK(job.kv_bytes_per_token() == 2 * 64 * 4);
  CHECK(job.policy() == Policy::kPackedStaticCp);
  CHECK(job.cost().flops_formula == FlopsFormula::kExact);
  CHECK(job.cost().overlap_scope == OverlapScope::kAttention);
  CHECK(job.cost().seconds_per_flop == 1e-12);
  CHECK(job.cost().pass_multiplier == 3);
  CHECK(job.cost().seconds_per_micro_batch == 0.01);
  CHECK(job.cost().efficiency_half_tokens == 64);
  CHECK(job.cost().collectives_per_layer == 2);
  CHECK(job.cost().bytes_per_element == 4);
  CHECK(job.cost().backward_forward_ratio == 1.5);
  CHECK(!job.heuristic().roll_back);
  CHECK(job.chunk_flow().chunk_size_tokens == 64);
  CHECK(job.chunk_flow().retained_chunks == 3);
  CHECK(job.cost().intra_node.seconds_per_collective == 1e-5);
  CHECK(job.cost().intra_node.seconds_per_byte == 1e-11);
  REQUIRE(job.cost().intra_node.table.size() == 2);
  CHECK(job.cost().intra_node.table[1].bytes == 8);
  CHECK(job.cost().intra_node.table[1].seconds == 2e-5);
  CHECK(job.inter_node().seconds_per_collective == 2e-5);
  CHECK(job.inter_node().seconds_per_byte == 2e-11);
  CHECK(job.inter_node().table.size() == 1);
}

TEST_CASE("JobFromProto: what is unset has the native spec's default",
          "[server][convert]") {
  const v1::JobSpec proto =
      ParseJobSpecText(R"pb(
        model { hidden_size: 64 layer_count: 1 attention_head_count: 4 }
        memory { bucket_size_tokens: 10 }
      )pb")
          .value();
  const Job job = JobFromProto(proto).value();
  const JobSpec defaults;
  CHECK(job.pool().ranks() == 1);
  CHECK(job.parallelism().block_scope == BlockScope::kGroup);
  CHECK(!job.parallelism().uniform_micro_batch_count);
  CHECK(job.policy() == Policy::kOptimized);
  CHECK(job.search_steps() == defaults.optimizer.search_steps);
  CHECK(job.max_sequences_per_micro_batch() == 65535);
  CHECK(job.cost().flops_formula == FlopsFormula::kPaper);
  CHECK(job.cost().overlap_scope == OverlapScope::kLayer);
  CHECK(job.cost().seconds_per_flop == defaults.cost.seconds_per_flop);
  CHECK(job.cost().pass_multiplier == 4);
  CHECK(job.cost().collectives_per_layer == 3);
  CHECK(job.cost().bytes_per_element == 2);
  CHECK(!job.cost().inter_node);
  // A number that is set is checked, 0 included.
  v1::JobSpec zero = proto;
  zero.mutable_parallelism()->set_cp_size(0);
  CHECK(GetErrorDetail(JobFromProto(zero).status())->field ==
        "parallelism.cp_size");
  CHECK(GetErrorDetail(JobFromProto(v1::JobSpec()).status())->field ==
        "model.hidden_size");
}

TEST_CASE("JobFromProto: random specs plan as their native form does",
          "[server][convert][random]") {
  const uint64_t seed = GENERATE(range(uint64_t{1}, uint64_t{101}));
  CAPTURE(seed);
  testing::Random random(seed);
  const JobSpec spec = testing::RandomSpec(random);
  const v1::JobSpec proto = ToProto(spec);
  const absl::StatusOr<Job> native = Job::Create(spec);
  const absl::StatusOr<Job> job = JobFromProto(proto);
  INFO(proto.ShortDebugString());
  REQUIRE(native.ok());
  REQUIRE(job.ok());
  const std::vector<int64_t> lengths =
      testing::RandomLengths(random, *native, 20);
  const absl::StatusOr<Plan> expected = MakePlan(*native, lengths, {});
  const absl::StatusOr<Plan> actual = MakePlan(*job, lengths, {});
  REQUIRE(expected.ok());
  REQUIRE(actual.ok());
  CHECK((*actual == *expected));

  // The text form says the same.
  std::string text;
  REQUIRE(google::protobuf::TextFormat::PrintToString(proto, &text));
  CHECK(CanonicalBytes(ParseJobSpecText(text).value()) ==
        CanonicalBytes(proto));
}

TEST_CASE("JobFromProto: labels are bounded in number and size",
          "[server][convert]") {
  v1::JobSpec spec = FullSpec();
  auto& labels = *spec.mutable_labels();
  labels.clear();
  for (int i = 0; i < 64; ++i) labels["key" + std::to_string(i)] = "";
  CHECK(JobFromProto(spec).ok());
  const auto refused = [&](const std::string& what) {
    const absl::Status status = JobFromProto(spec).status();
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    REQUIRE(detail);
    CHECK(detail->field == "labels");
    CHECK_THAT(std::string(status.message()), Contains(what));
  };
  labels["one more"] = "";
  refused("65 entries, at most 64");
  labels.clear();
  labels[std::string(63, 'k')] = std::string(255, 'v');
  CHECK(JobFromProto(spec).ok());
  labels[std::string(64, 'k')] = "";
  refused("64 bytes");
  labels.clear();
  labels[""] = "x";
  refused("0 bytes");
  labels.clear();
  labels["long"] = std::string(256, 'v');
  refused("\"long\" has 256 bytes, at most 255");
}

TEST_CASE("ParseJobSpecText: errors name line, column and the culprit",
          "[server][convert]") {
  struct Row {
    std::string text;
    std::string place;
    std::string culprit;
  };
  // A name's column is the one just after it.
  const Row row = GENERATE(
      Row{"model {\n  hidden_sizes: 4\n}\n", "line 2, column 15",
          "hidden_sizes"},
      Row{"models { }", "line 1, column 8", "models"},
      Row{"policy: POLICY_BEST", "line 1, column 20", "POLICY_BEST"},
      Row{"model {\n\n hidden_size: 1.5 }", "line 3, column 15", "1.5"},
      Row{"parallelism { dp_size: 3000000000 }", "line 1, column 24", "range"},
      Row{"model {\n", "line 2, column 1", ""},
      Row{"model { hidden_size: 1 hidden_size: 2 }", "line 1, column 35",
          "hidden_size"});
  CAPTURE(row.text);
  const absl::Status status = ParseJobSpecText(row.text).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(GetErrorDetail(status));
  CHECK(GetErrorDetail(status)->field == "job_spec");
  CHECK_THAT(std::string(status.message()),
             Contains(row.place) && Contains(row.culprit));
}

TEST_CASE("ParseJobSpecText: comments and an empty text are fine",
          "[server][convert]") {
  CHECK(ParseJobSpecText("").ok());
  CHECK(ParseJobSpecText("# nothing\npolicy: POLICY_SKRULL # paper\n")
            ->policy() == v1::POLICY_SKRULL);
}

TEST_CASE("CanonicalBytes: do not depend on the order of labels",
          "[server][convert]") {
  v1::JobSpec up;
  v1::JobSpec down;
  for (int i = 0; i < 64; ++i) {
    (*up.mutable_labels())[std::to_string(i)] = "x";
    (*down.mutable_labels())[std::to_string(63 - i)] = "x";
  }
  CHECK(CanonicalBytes(up) == CanonicalBytes(down));
  down.mutable_labels()->erase("7");
  CHECK(CanonicalBytes(up) != CanonicalBytes(down));
}

TEST_CASE("Policies: every one has its name on the wire, and no other",
          "[server][convert]") {
  for (Policy policy : AllPolicies()) {
    const v1::Policy proto = PolicyToProto(policy);
    CHECK(v1::Policy_Name(proto) == PolicyName(policy));
    CHECK(PolicyFromProto(proto, "policy").value() == policy);
  }
  CHECK(static_cast<int>(AllPolicies().size()) + 1 ==
        v1::Policy_descriptor()->value_count());
  CHECK(PolicyFromProto(v1::POLICY_UNSPECIFIED, "policy").value() ==
        std::nullopt);
  const absl::Status status =
      PolicyFromProto(static_cast<v1::Policy>(44), "batch.policy").status();
  CHECK(GetErrorDetail(status)->field == "batch.policy");
  CHECK_THAT(std::string(status.message()), Contains("44"));
}

TEST_CASE("ValidateJobName: accepts the documented alphabet alone",
          "[server][convert]") {
  for (const std::string& name :
       {std::string("a"), std::string("7"), std::string("Run-7_b.2"),
        std::string(128, 'x')}) {
    CAPTURE(name);
    CHECK(ValidateJobName(name, "name").ok());
  }
  for (const std::string& name :
       {std::string(""), std::string(129, 'x'), std::string("-a"),
        std::string(".a"), std::string("_a"), std::string("a b"),
        std::string("a/b"), std::string("a\n"), std::string("\xc3\xa4"),
        std::string("a\0b", 3)}) {
    CAPTURE(name);
    const absl::Status status = ValidateJobName(name, "job");
    REQUIRE(GetErrorDetail(status));
    CHECK(GetErrorDetail(status)->field == "job");
    // Nothing in the message may upset a terminal or a log.
    for (char c : std::string(status.message())) CHECK((c >= 32 && c < 127));
  }
}

}  // namespace
}  // namespace skrull
