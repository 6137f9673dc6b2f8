// Plans to the wire and back, and their digest.
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/server/convert.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

// Any values at all: legal or not.
class AnyValues {
 public:
  explicit AnyValues(uint64_t seed) : engine_(seed) {}

  int32_t Int32() { return static_cast<int32_t>(Int64()); }
  int64_t Int64() {
    switch (engine_() % 4) {
      case 0:
        return 0;
      case 1:
        return static_cast<int64_t>(engine_());
      case 2:
        return engine_() % 2 == 0 ? std::numeric_limits<int64_t>::min()
                                  : std::numeric_limits<int64_t>::max();
      default:
        return static_cast<int64_t>(engine_() % 1000);
    }
  }
  double Double() {
    return std::uniform_real_distribution<double>(-1e9, 1e9)(engine_);
  }
  size_t Count() { return engine_() % 5; }
  std::string Text() { return std::string(Count(), 't'); }

 private:
  std::mt19937_64 engine_;
};

Plan AnyPlan(AnyValues& any) {
  Plan plan;
  plan.key = {.job = any.Text(), .step = any.Int64(), .attempt = any.Int32()};
  const std::vector<Policy> policies = AllPolicies();
  plan.policy = policies[any.Count() % policies.size()];
  plan.calibration_epoch = any.Int64();
  for (size_t m = any.Count(); m > 0; --m) {
    MicroBatchPlan micro_batch;
    for (size_t p = any.Count(); p > 0; --p) {
      micro_batch.placements.push_back({.sequence = any.Int32(),
                                        .token_count = any.Int32(),
                                        .first_rank = any.Int32(),
                                        .degree = any.Int32()});
    }
    micro_batch.token_count = any.Int64();
    micro_batch.predicted_seconds = any.Double();
    micro_batch.max_rank_tokens = any.Int64();
    plan.micro_batches.push_back(micro_batch);
  }
  for (size_t b = any.Count(); b > 0; --b) {
    plan.blocks.push_back({.first_rank = any.Int32(), .degree = any.Int32()});
  }
  plan.summary = {
      .predicted_seconds = any.Double(),
      .lower_bound_seconds = any.Double(),
      .roll_back_count = any.Int64(),
      .sharded_sequence_count = any.Int64(),
      .sharded_token_count = any.Int64(),
      .micro_batch_count = any.Int64(),
      .max_rank_tokens = any.Int64(),
      .dp_imbalance = any.Double(),
      .rank_imbalance = any.Double(),
      .pipeline_seconds = any.Double(),
      .pipeline_bubble = any.Double(),
      .explanation = Explanation{.bottleneck = Bottleneck::kExchange,
                                 .rank = any.Int32(),
                                 .sequence = any.Int32(),
                                 .sequence_share = any.Double(),
                                 .what_ifs = {},
                                 .text = any.Text()}};
  for (size_t w = any.Count(); w > 0; --w) {
    plan.summary.explanation->what_ifs.push_back(
        {.field = any.Text(),
         .value = any.Text(),
         .lower_bound_seconds = any.Double()});
  }
  return plan;
}

ChunkOperation AnyOperation(AnyValues& any) {
  static constexpr ChunkPass kPasses[] = {
      ChunkPass::kForward, ChunkPass::kForwardDiscard, ChunkPass::kRecompute,
      ChunkPass::kBackward};
  return {.pass = kPasses[any.Count() % 4], .chunk = any.Int32()};
}

ChunkPlan AnyChunkPlan(AnyValues& any) {
  ChunkPlan plan;
  plan.chunk_size_tokens = any.Int64();
  plan.retained_chunks = any.Int64();
  plan.cp_size = any.Int32();
  for (size_t c = any.Count(); c > 0; --c) {
    Chunk chunk;
    chunk.dp_rank = any.Int32();
    for (size_t p = any.Count(); p > 0; --p) {
      chunk.pieces.push_back({.sequence = any.Int32(),
                              .token_count = any.Int32(),
                              .range = {any.Int64(), any.Int64()}});
    }
    chunk.group_index = any.Int32();
    chunk.group_size = any.Int32();
    chunk.token_count = any.Int64();
    chunk.predicted_seconds = any.Double();
    plan.chunks.push_back(chunk);
  }
  for (size_t s = any.Count(); s > 0; --s) {
    ChunkSchedule schedule;
    schedule.dp_rank = any.Int32();
    for (size_t o = any.Count(); o > 0; --o) {
      schedule.operations.push_back(AnyOperation(any));
    }
    schedule.predicted_seconds = any.Double();
    plan.schedules.push_back(schedule);
  }
  return plan;
}

v1::Plan Reparsed(const std::string& bytes) {
  v1::Plan plan;
  REQUIRE(plan.ParseFromString(bytes));
  return plan;
}

TEST_CASE("PlanToProto: any plan survives the wire, digest included",
          "[server][convert][random]") {
  const uint64_t seed = GENERATE(range(uint64_t{1}, uint64_t{301}));
  CAPTURE(seed);
  AnyValues any(seed);
  Plan plan = AnyPlan(any);
  if (seed % 2 == 0) plan.chunk_plan = AnyChunkPlan(any);
  const v1::Plan proto = PlanToProto(plan);
  const v1::Plan received = Reparsed(proto.SerializeAsString());
  CHECK((PlanFromProto(received).value() == plan));
  CHECK(received.digest() == proto.digest());
  CHECK(PlanDigest(received) == proto.digest());
  CHECK(PlanDigest(proto) == PlanToProto(plan).digest());
  const EncodedPlan encoded = EncodePlan(plan);
  CHECK(encoded.digest == proto.digest());
  CHECK(encoded.bytes == CanonicalBytes(proto));
}

TEST_CASE("PlanToProto: a planned batch is legal after the wire",
          "[server][convert][random]") {
  const uint64_t seed = GENERATE(range(uint64_t{1}, uint64_t{51}));
  CAPTURE(seed);
  testing::Random random(seed);
  const Job job = testing::MakeJob(testing::RandomSpec(random));
  const std::vector<int64_t> lengths = testing::RandomLengths(random, job, 30);
  const Plan plan = testing::MustPlan(job, lengths);
  const v1::Plan received = Reparsed(CanonicalBytes(PlanToProto(plan)));
  const Plan back = PlanFromProto(received).value();
  CHECK((back == plan));
  CHECK(CheckPlan(job, lengths, back).ok());
}

TEST_CASE("PlanDigest: any change of a plan changes it", "[server][convert]") {
  AnyValues any(1);
  Plan plan = AnyPlan(any);
  plan.micro_batches = {{.placements = {{1, 2, 3, 4}, {5, 6, 7, 8}}}};
  const std::string digest = PlanToProto(plan).digest();
  const auto changed = [&](const auto& change) {
    Plan other = plan;
    change(other);
    return PlanToProto(other).digest() != digest;
  };
  CHECK(changed([](Plan& p) { p.key.job += "x"; }));
  CHECK(changed([](Plan& p) { p.key.step ^= 1; }));
  CHECK(changed([](Plan& p) { p.key.attempt ^= 1; }));
  CHECK(changed([](Plan& p) { p.calibration_epoch ^= 1; }));
  CHECK(changed([](Plan& p) {
    p.policy =
        p.policy == Policy::kSkrull ? Policy::kStaticCp : Policy::kSkrull;
  }));
  CHECK(changed([](Plan& p) { p.micro_batches.emplace_back(); }));
  CHECK(changed([](Plan& p) { p.blocks.push_back({0, 2}); }));
  CHECK(changed([](Plan& p) { p.summary.predicted_seconds += 1e-3; }));
  CHECK(changed([](Plan& p) {
    std::swap(p.micro_batches[0].placements[0],
              p.micro_batches[0].placements[1]);
  }));
}

TEST_CASE("PlanDigest: is SHA-256 of the documented bytes",
          "[server][convert]") {
  Plan plan;
  plan.key = {.job = "run", .step = 300, .attempt = 1};
  plan.micro_batches.push_back({.placements = {{0, 5, 2, 2}},
                                .token_count = 5,
                                .predicted_seconds = 0,
                                .max_rank_tokens = 3});
  plan.blocks = {{2, 2}};
  // Written by hand from plan.proto: fields in order of their numbers, without
  // the digest; zeros are left out.
  static constexpr char kBytes[] =
      "\x0a\x03run"               // job
      "\x10\xac\x02"              // step 300
      "\x18\x01"                  // attempt
      "\x28\x01"                  // POLICY_SKRULL
      "\x3a\x0c"                  // micro_batches[0]
      "\x0a\x06"                  //   placements[0]: sequence 0
      "\x10\x05\x18\x02\x20\x02"  //     token_count, first_rank, degree
      "\x10\x05"                  //   token_count
      "\x20\x03"                  //   max_rank_tokens
      "\x42\x04\x08\x02\x10\x02"  // blocks[0]
      "\x4a\x00";                 // summary
  const v1::Plan proto = PlanToProto(plan);
  CHECK(proto.digest() == Sha256Hex(std::string(kBytes, sizeof(kBytes) - 1)));
  v1::Plan with_other_digest = proto;
  with_other_digest.set_digest("whatever");
  CHECK(PlanDigest(with_other_digest) == proto.digest());

  plan.policy = Policy::kChunkFlow;
  plan.micro_batches.clear();
  plan.blocks.clear();
  plan.chunk_plan = ChunkPlan{
      .chunk_size_tokens = 4,
      .retained_chunks = 1,
      .chunks =
          {{.dp_rank = 1,
            .pieces = {{.sequence = 2, .token_count = 7, .range = {4, 7}}},
            .group_index = 1,
            .group_size = 2,
            .token_count = 3,
            .predicted_seconds = 0}},
      .schedules = {{.dp_rank = 1,
                     .operations = {{ChunkPass::kRecompute, 5}},
                     .predicted_seconds = 0}},
      .cp_size = 6};
  static constexpr char kChunkBytes[] =
      "\x0a\x03run\x10\xac\x02\x18\x01"
      "\x28\x08"          // POLICY_CHUNK_FLOW
      "\x4a\x00"          // summary
      "\x52\x26"          // chunk_plan
      "\x08\x04\x10\x01"  //   chunk_size_tokens, retained_chunks
      "\x1a\x14"          //   chunks[0]
      "\x08\x01"          //     dp_rank
      "\x12\x0a"          //     pieces[0]: sequence, token_count,
      "\x08\x02\x10\x07"  //       range
      "\x1a\x04\x08\x04\x10\x07"
      "\x18\x01\x20\x02\x28\x03"  //     group_index, _size, token_count
      "\x22\x08"                  //   schedules[0]
      "\x08\x01"                  //     dp_rank
      "\x12\x04\x08\x03\x10\x05"  //     operations[0]: pass, chunk
      "\x28\x06";                 //   cp_size
  CHECK(PlanToProto(plan).digest() ==
        Sha256Hex(std::string(kChunkBytes, sizeof(kChunkBytes) - 1)));
}

TEST_CASE("PlanFromProto: refuses an operation it does not know",
          "[server][convert]") {
  v1::Plan plan;
  plan.set_policy(v1::POLICY_CHUNK_FLOW);
  v1::ChunkSchedule* schedule = plan.mutable_chunk_plan()->add_schedules();
  schedule->add_operations()->set_pass(v1::CHUNK_PASS_BACKWARD);
  CHECK(PlanFromProto(plan).ok());
  schedule->add_operations()->set_pass(
      GENERATE(v1::CHUNK_PASS_UNSPECIFIED, static_cast<v1::ChunkPass>(9)));
  const absl::Status status = PlanFromProto(plan).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(GetErrorDetail(status)->field ==
        "chunk_plan.schedules[0].operations[1].pass");
}

TEST_CASE("PlanDigest: does not depend on the order of fields on the wire",
          "[server][convert]") {
  AnyValues any(3);
  const v1::Plan plan = PlanToProto(AnyPlan(any));
  // Every top-level field alone, the last one first; concatenated messages
  // merge.
  std::string reversed;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  plan.GetReflection()->ListFields(plan, &fields);
  for (auto field = fields.rbegin(); field != fields.rend(); ++field) {
    v1::Plan one = plan;
    for (const auto* other : fields) {
      if (other != *field) one.GetReflection()->ClearField(&one, other);
    }
    reversed += one.SerializeAsString();
  }
  REQUIRE(reversed != plan.SerializeAsString());
  CHECK(PlanDigest(Reparsed(reversed)) == plan.digest());
}

// A newer daemon may add fields; an older client must still agree.
TEST_CASE("PlanDigest: counts fields that this version does not know",
          "[server][convert]") {
  AnyValues any(4);
  v1::Plan plan = PlanToProto(AnyPlan(any));
  plan.add_blocks();
  std::string newer_bytes;
  {
    v1::Plan newer = plan;
    newer.clear_digest();
    newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(1000, 7);
    newer.mutable_blocks(0)
        ->GetReflection()
        ->MutableUnknownFields(newer.mutable_blocks(0))
        ->AddLengthDelimited(900, "new");
    newer_bytes = CanonicalBytes(newer);
  }
  const v1::Plan received = Reparsed(newer_bytes);
  CHECK(PlanDigest(received) == Sha256Hex(newer_bytes));
  CHECK(PlanDigest(received) != PlanDigest(plan));
}

TEST_CASE("PlanFromProto: refuses a plan without a known policy",
          "[server][convert]") {
  v1::Plan plan;
  plan.set_policy(
      GENERATE(v1::POLICY_UNSPECIFIED, static_cast<v1::Policy>(77)));
  const absl::Status status = PlanFromProto(plan).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(GetErrorDetail(status)->field == "policy");
}

TEST_CASE("Sha256Hex: agrees with the standard's examples",
          "[server][convert]") {
  CHECK(Sha256Hex("") ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha256Hex("abc") ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Sha256Hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("RankPlanToProto: carries every value over", "[server][convert]") {
  RankPlan plan;
  plan.job = "run";
  plan.step = 12;
  plan.attempt = 1;
  plan.digest = "abc";
  plan.rank = 3;
  plan.blocks = {{0, 2}, {2, 2}};
  plan.batch_token_count = 99;
  plan.predicted_seconds = 1.5;
  RankMicroBatch micro_batch;
  micro_batch.segments = {{.sequence = 4,
                           .token_count = 20,
                           .block = {2, 2},
                           .low = {5, 10},
                           .high = {10, 15}}};
  micro_batch.row_count = 10;
  micro_batch.token_count = 20;
  micro_batch.token_weight = 0.25;
  plan.micro_batches = {{}, micro_batch};
  const v1::RankPlan proto = RankPlanToProto(plan);
  CHECK(proto.job() == "run");
  CHECK(proto.step() == 12);
  CHECK(proto.attempt() == 1);
  CHECK(proto.digest() == "abc");
  CHECK(proto.rank() == 3);
  REQUIRE(proto.blocks_size() == 2);
  CHECK(proto.blocks(1).first_rank() == 2);
  CHECK(proto.blocks(1).degree() == 2);
  CHECK(proto.batch_token_count() == 99);
  CHECK(proto.predicted_seconds() == 1.5);
  REQUIRE(proto.micro_batches_size() == 2);
  CHECK(proto.micro_batches(0).segments_size() == 0);
  const v1::RankMicroBatch& second = proto.micro_batches(1);
  CHECK(second.row_count() == 10);
  CHECK(second.token_count() == 20);
  CHECK(second.token_weight() == 0.25);
  REQUIRE(second.segments_size() == 1);
  CHECK(second.segments(0).sequence() == 4);
  CHECK(second.segments(0).token_count() == 20);
  CHECK(second.segments(0).block().first_rank() == 2);
  CHECK(second.segments(0).block().degree() == 2);
  CHECK(second.segments(0).low().begin() == 5);
  CHECK(second.segments(0).low().end() == 10);
  CHECK(second.segments(0).high().begin() == 10);
  CHECK(second.segments(0).high().end() == 15);
  CHECK_FALSE(proto.has_chunk_plan());

  plan.chunk_plan =
      RankChunkPlan{.retained_chunks = 7,
                    .chunks = {{.chunk = 5,
                                .segments = micro_batch.segments,
                                .row_count = 10,
                                .group_index = 1,
                                .group_size = 3,
                                .token_weight = 0.5,
                                .token_count = 40}},
                    .operations = {{ChunkPass::kForwardDiscard, 5}}};
  const v1::RankPlan with_chunks = RankPlanToProto(plan);
  const v1::RankChunkPlan& chunks = with_chunks.chunk_plan();
  CHECK(chunks.retained_chunks() == 7);
  REQUIRE(chunks.chunks_size() == 1);
  CHECK(chunks.chunks(0).chunk() == 5);
  CHECK(chunks.chunks(0).segments(0).SerializeAsString() ==
        second.segments(0).SerializeAsString());
  CHECK(chunks.chunks(0).row_count() == 10);
  CHECK(chunks.chunks(0).group_index() == 1);
  CHECK(chunks.chunks(0).group_size() == 3);
  CHECK(chunks.chunks(0).token_weight() == 0.5);
  CHECK(chunks.chunks(0).token_count() == 40);
  REQUIRE(chunks.operations_size() == 1);
  CHECK(chunks.operations(0).pass() == v1::CHUNK_PASS_FORWARD_DISCARD);
  CHECK(chunks.operations(0).chunk() == 5);
}

}  // namespace
}  // namespace skrull
