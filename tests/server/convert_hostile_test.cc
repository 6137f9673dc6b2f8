// Messages that no honest client sends: whatever bytes arrive, every converter
// answers with a value or with a refusal that can itself be sent.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/text_format.h"
#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/server/convert.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

constexpr int kRounds = 20000;

// Flips, drops, doubles and inserts a few bytes.
std::string Mutated(const std::string& bytes, std::mt19937_64& engine) {
  std::string out = bytes;
  for (uint64_t edits = 1 + engine() % 4; edits > 0 && !out.empty(); --edits) {
    const size_t at = engine() % out.size();
    const size_t length = std::min<size_t>(1 + engine() % 8, out.size() - at);
    switch (engine() % 5) {
      case 0:
        out[at] = static_cast<char>(engine());
        break;
      case 1:
        out[at] = static_cast<char>(out[at] ^ (1 << engine() % 8));
        break;
      case 2:
        out.erase(at, length);
        break;
      case 3:
        out.insert(at, out.substr(at, length));
        break;
      default:  // a varint of ten bytes, or infinity, or a quiet NaN
        out.insert(at, engine() % 2 == 0
                           ? std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                         "\x01")
                           : std::string("\0\0\0\0\0\0\xf0\x7f", 8));
    }
  }
  return out;
}

// A refusal must name a field, and must survive the wire.
void CheckRefusal(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  v1::RpcStatus received;
  const bool sent =
      received.ParseFromString(StatusToProto(status).SerializeAsString());
  if (status.code() != absl::StatusCode::kInvalidArgument || !detail ||
      detail->field.empty() || !sent ||
      !GetErrorDetail(StatusFromProto(received))) {
    FAIL_CHECK("not a proper refusal: " << status.ToString());
  }
}

v1::JobSpec Seed() {
  return ParseJobSpecText(R"pb(
           model {
             hidden_size: 896
             layer_count: 24
             attention_head_count: 14
             kv_head_count: 2
           }
           parallelism { dp_size: 4 cp_size: 8 block_scope: BLOCK_SCOPE_POOL }
           memory { bucket_size_tokens: 26624 bytes_per_token: 1.5 }
           cost {
             seconds_per_micro_batch: 0.01
             intra_node {
               table { bytes: 8 seconds: 1e-5 }
               table { bytes: 16 seconds: 2e-5 }
             }
             inter_node { seconds_per_byte: 1e-11 }
           }
           policy: POLICY_SKRULL
           labels { key: "owner" value: "someone" }
         )pb")
      .value();
}

TEST_CASE("JobFromProto: mutated messages are read or refused",
          "[server][convert][random]") {
  const google::protobuf::LogSilencer silence;
  const uint64_t seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const std::string bytes = Seed().SerializeAsString();
  int read = 0;
  int refused = 0;
  for (int i = 0; i < kRounds; ++i) {
    v1::JobSpec spec;
    if (!spec.ParseFromString(Mutated(bytes, engine))) continue;
    const absl::StatusOr<Job> job = JobFromProto(spec);
    if (job.ok()) {
      ++read;
      CHECK(job->bucket_size() >= 1);
    } else {
      ++refused;
      CheckRefusal(job.status());
    }
  }
  CHECK(read > 0);
  CHECK(refused > 0);
}

TEST_CASE("ParseJobSpecText: mutated texts are read or refused",
          "[server][convert][random]") {
  const google::protobuf::LogSilencer silence;
  const uint64_t seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  std::string text;
  REQUIRE(google::protobuf::TextFormat::PrintToString(Seed(), &text));
  int refused = 0;
  for (int i = 0; i < kRounds / 4; ++i) {
    const absl::StatusOr<v1::JobSpec> spec =
        ParseJobSpecText(Mutated(text, engine));
    if (spec.ok()) {
      const absl::StatusOr<Job> job = JobFromProto(*spec);
      if (!job.ok()) CheckRefusal(job.status());
    } else {
      ++refused;
      CheckRefusal(spec.status());
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("ParseJobSpecText: deep nesting is refused", "[server][convert]") {
  // Unknown to the schema, so the first level is refused; and a known one
  // cannot nest: neither may overrun the stack.
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "model{";
  CheckRefusal(ParseJobSpecText(text).status());
  CheckRefusal(ParseJobSpecText(std::string(100000, '[')).status());
}

TEST_CASE("PlanFromProto: mutated plans are read or refused",
          "[server][convert][random]") {
  const google::protobuf::LogSilencer silence;
  const uint64_t seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const Job job = testing::MakeJob(testing::UnitSpec(2, 4, 100));
  const std::vector<int64_t> lengths = {300, 5, 7, 90, 90, 90, 1, 399};
  const Policy policy = GENERATE(Policy::kSkrull, Policy::kChunkFlow);
  const std::string bytes =
      PlanToProto(testing::MustPlan(job, lengths, policy)).SerializeAsString();
  for (int i = 0; i < kRounds; ++i) {
    v1::Plan proto;
    if (!proto.ParseFromString(Mutated(bytes, engine))) continue;
    const absl::StatusOr<Plan> plan = PlanFromProto(proto);
    // Whatever it is, the checker survives it, and so does its share.
    if (plan.ok() && CheckPlan(job, lengths, *plan).ok()) {
      CHECK(MakeRankPlan(*plan, "", 3).batch_token_count == 982);
    }
    if (!plan.ok()) {
      CheckRefusal(plan.status());
    } else if (PlanToProto(*plan).digest() != PlanDigest(proto)) {
      // Only what the native form cannot hold may be lost.
      v1::Plan known = proto;
      known.DiscardUnknownFields();
      known.mutable_summary();
      if (known.has_chunk_plan()) {
        for (v1::Chunk& chunk : *known.mutable_chunk_plan()->mutable_chunks()) {
          for (v1::ChunkPiece& piece : *chunk.mutable_pieces()) {
            piece.mutable_range();
          }
        }
      }
      CHECK(PlanToProto(*plan).digest() == PlanDigest(known));
    }
  }
}

TEST_CASE("StatusFromProto: mutated statuses are read",
          "[server][convert][random]") {
  const google::protobuf::LogSilencer silence;
  const uint64_t seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  ErrorDetail detail;
  detail.reason = ErrorReason::kSequenceTooLong;
  detail.field = "lengths";
  detail.indices = {1, 2, 300};
  detail.limit = 4096;
  detail.retry_after_seconds = 2.5;
  const std::string bytes =
      StatusToProto(MakeError(detail, "text")).SerializeAsString();
  int unchanged = 0;
  for (int i = 0; i < kRounds; ++i) {
    v1::RpcStatus proto;
    if (!proto.ParseFromString(Mutated(bytes, engine))) continue;
    const absl::Status status = StatusFromProto(proto);
    const std::optional<ErrorDetail> read = GetErrorDetail(status);
    if (read == detail) ++unchanged;
    if (read) CHECK(read->indices.size() <= ErrorDetail::kMaxIndices);
    // What was read can be passed on.
    v1::RpcStatus passed_on;
    CHECK(passed_on.ParseFromString(StatusToProto(status).SerializeAsString()));
  }
  CHECK(unchanged < kRounds / 2);
}

}  // namespace
}  // namespace skrull
