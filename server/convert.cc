// Plans and their digest; convert_job.cc and convert_status.cc hold the rest.
#include "skrull/server/convert.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert_chunks.h"

namespace skrull {
namespace {

void MicroBatchToProto(const MicroBatchPlan& micro_batch,
                       v1::MicroBatch* proto) {
  proto->mutable_placements()->Reserve(
      static_cast<int>(micro_batch.placements.size()));
  for (const SequencePlacement& placement : micro_batch.placements) {
    v1::Placement* out = proto->add_placements();
    out->set_sequence(placement.sequence);
    out->set_token_count(placement.token_count);
    out->set_first_rank(placement.first_rank);
    out->set_degree(placement.degree);
  }
  proto->set_token_count(micro_batch.token_count);
  proto->set_predicted_seconds(micro_batch.predicted_seconds);
  proto->set_max_rank_tokens(micro_batch.max_rank_tokens);
}

MicroBatchPlan MicroBatchFromProto(const v1::MicroBatch& proto) {
  MicroBatchPlan micro_batch;
  micro_batch.placements.reserve(static_cast<size_t>(proto.placements_size()));
  for (const v1::Placement& placement : proto.placements()) {
    micro_batch.placements.push_back({.sequence = placement.sequence(),
                                      .token_count = placement.token_count(),
                                      .first_rank = placement.first_rank(),
                                      .degree = placement.degree()});
  }
  micro_batch.token_count = proto.token_count();
  micro_batch.predicted_seconds = proto.predicted_seconds();
  micro_batch.max_rank_tokens = proto.max_rank_tokens();
  return micro_batch;
}

void BlockToProto(Block block, v1::Block* proto) {
  proto->set_first_rank(block.first_rank);
  proto->set_degree(block.degree);
}

v1::Bottleneck BottleneckToProto(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kUnspecified:
      break;
    case Bottleneck::kWork:
      return v1::BOTTLENECK_WORK;
    case Bottleneck::kSequence:
      return v1::BOTTLENECK_SEQUENCE;
    case Bottleneck::kExchange:
      return v1::BOTTLENECK_EXCHANGE;
    case Bottleneck::kOverhead:
      return v1::BOTTLENECK_OVERHEAD;
    case Bottleneck::kPlacement:
      return v1::BOTTLENECK_PLACEMENT;
  }
  return v1::BOTTLENECK_UNSPECIFIED;
}

absl::StatusOr<Bottleneck> BottleneckFromProto(v1::Bottleneck bottleneck) {
  switch (bottleneck) {
    case v1::BOTTLENECK_UNSPECIFIED:
      return Bottleneck::kUnspecified;
    case v1::BOTTLENECK_WORK:
      return Bottleneck::kWork;
    case v1::BOTTLENECK_SEQUENCE:
      return Bottleneck::kSequence;
    case v1::BOTTLENECK_EXCHANGE:
      return Bottleneck::kExchange;
    case v1::BOTTLENECK_OVERHEAD:
      return Bottleneck::kOverhead;
    case v1::BOTTLENECK_PLACEMENT:
      return Bottleneck::kPlacement;
    default:
      return FieldError("summary.explanation.bottleneck",
                        absl::StrCat("unknown value ", bottleneck));
  }
}

void ExplanationToProto(const Explanation& explanation,
                        v1::Explanation* proto) {
  proto->set_bottleneck(BottleneckToProto(explanation.bottleneck));
  proto->set_rank(explanation.rank);
  proto->set_sequence(explanation.sequence);
  proto->set_sequence_share(explanation.sequence_share);
  for (const WhatIf& what_if : explanation.what_ifs) {
    v1::WhatIf* out = proto->add_what_ifs();
    out->set_field(what_if.field);
    out->set_value(what_if.value);
    out->set_lower_bound_seconds(what_if.lower_bound_seconds);
  }
  proto->set_text(explanation.text);
}

absl::StatusOr<Explanation> ExplanationFromProto(const v1::Explanation& proto) {
  absl::StatusOr<Bottleneck> bottleneck =
      BottleneckFromProto(proto.bottleneck());
  if (!bottleneck.ok()) return bottleneck.status();
  Explanation explanation{.bottleneck = *bottleneck,
                          .rank = proto.rank(),
                          .sequence = proto.sequence(),
                          .sequence_share = proto.sequence_share(),
                          .what_ifs = {},
                          .text = proto.text()};
  for (const v1::WhatIf& what_if : proto.what_ifs()) {
    explanation.what_ifs.push_back(
        {.field = what_if.field(),
         .value = what_if.value(),
         .lower_bound_seconds = what_if.lower_bound_seconds()});
  }
  return explanation;
}

void SummaryToProto(const PlanSummary& summary, v1::PlanSummary* proto) {
  proto->set_predicted_seconds(summary.predicted_seconds);
  proto->set_lower_bound_seconds(summary.lower_bound_seconds);
  proto->set_roll_back_count(summary.roll_back_count);
  proto->set_sharded_sequence_count(summary.sharded_sequence_count);
  proto->set_sharded_token_count(summary.sharded_token_count);
  proto->set_micro_batch_count(summary.micro_batch_count);
  proto->set_max_rank_tokens(summary.max_rank_tokens);
  proto->set_dp_imbalance(summary.dp_imbalance);
  proto->set_rank_imbalance(summary.rank_imbalance);
  proto->set_pipeline_seconds(summary.pipeline_seconds);
  proto->set_pipeline_bubble(summary.pipeline_bubble);
  if (summary.explanation) {
    ExplanationToProto(*summary.explanation, proto->mutable_explanation());
  }
}

absl::StatusOr<PlanSummary> SummaryFromProto(const v1::PlanSummary& proto) {
  PlanSummary summary;
  summary.predicted_seconds = proto.predicted_seconds();
  summary.lower_bound_seconds = proto.lower_bound_seconds();
  summary.roll_back_count = proto.roll_back_count();
  summary.sharded_sequence_count = proto.sharded_sequence_count();
  summary.sharded_token_count = proto.sharded_token_count();
  summary.micro_batch_count = proto.micro_batch_count();
  summary.max_rank_tokens = proto.max_rank_tokens();
  summary.dp_imbalance = proto.dp_imbalance();
  summary.rank_imbalance = proto.rank_imbalance();
  summary.pipeline_seconds = proto.pipeline_seconds();
  summary.pipeline_bubble = proto.pipeline_bubble();
  if (proto.has_explanation()) {
    absl::StatusOr<Explanation> explanation =
        ExplanationFromProto(proto.explanation());
    if (!explanation.ok()) return explanation.status();
    summary.explanation = *std::move(explanation);
  }
  return summary;
}

// The fields before the digest.
void SetKey(const PlanKey& key, v1::Plan* proto) {
  proto->set_job(key.job);
  proto->set_step(key.step);
  proto->set_attempt(key.attempt);
}

v1::Plan WithoutDigest(const Plan& plan) {
  v1::Plan proto;
  SetKey(plan.key, &proto);
  proto.set_policy(PolicyToProto(plan.policy));
  proto.set_calibration_epoch(plan.calibration_epoch);
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    MicroBatchToProto(micro_batch, proto.add_micro_batches());
  }
  for (Block block : plan.blocks) BlockToProto(block, proto.add_blocks());
  SummaryToProto(plan.summary, proto.mutable_summary());
  if (plan.chunk_plan) {
    ChunkPlanToProto(*plan.chunk_plan, proto.mutable_chunk_plan());
  }
  return proto;
}

}  // namespace

std::string CanonicalBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

v1::Plan PlanToProto(const Plan& plan) {
  v1::Plan proto = WithoutDigest(plan);
  proto.set_digest(Sha256Hex(CanonicalBytes(proto)));
  return proto;
}

EncodedPlan EncodePlan(const Plan& plan) {
  EncodedPlan encoded{.digest = {},
                      .bytes = CanonicalBytes(WithoutDigest(plan))};
  encoded.digest = Sha256Hex(encoded.bytes);
  // Fields are serialized in the order of their numbers, and a message is the
  // concatenation of its fields: the digest goes right after the fields before
  // it.
  v1::Plan before;
  SetKey(plan.key, &before);
  v1::Plan digest;
  digest.set_digest(encoded.digest);
  encoded.bytes.insert(before.ByteSizeLong(), CanonicalBytes(digest));
  return encoded;
}

absl::StatusOr<Plan> PlanFromProto(const v1::Plan& proto) {
  Plan plan;
  plan.key = {
      .job = proto.job(), .step = proto.step(), .attempt = proto.attempt()};
  absl::StatusOr<std::optional<Policy>> policy =
      PolicyFromProto(proto.policy(), "policy");
  if (!policy.ok()) return policy.status();
  if (!policy->has_value()) {
    return FieldError("policy", "a plan names the policy that made it");
  }
  plan.policy = **policy;
  plan.calibration_epoch = proto.calibration_epoch();
  plan.micro_batches.reserve(static_cast<size_t>(proto.micro_batches_size()));
  for (const v1::MicroBatch& micro_batch : proto.micro_batches()) {
    plan.micro_batches.push_back(MicroBatchFromProto(micro_batch));
  }
  for (const v1::Block& block : proto.blocks()) {
    plan.blocks.push_back(
        {.first_rank = block.first_rank(), .degree = block.degree()});
  }
  absl::StatusOr<PlanSummary> summary = SummaryFromProto(proto.summary());
  if (!summary.ok()) return summary.status();
  plan.summary = *std::move(summary);
  if (proto.has_chunk_plan()) {
    absl::StatusOr<ChunkPlan> chunk_plan =
        ChunkPlanFromProto(proto.chunk_plan());
    if (!chunk_plan.ok()) return chunk_plan.status();
    plan.chunk_plan = *std::move(chunk_plan);
  }
  return plan;
}

std::string PlanDigest(const v1::Plan& plan) {
  if (plan.digest().empty()) return Sha256Hex(CanonicalBytes(plan));
  v1::Plan copy = plan;
  copy.clear_digest();
  return Sha256Hex(CanonicalBytes(copy));
}

std::string Sha256Hex(const std::string& bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), hash, &size, EVP_sha256(),
                 nullptr) != 1) {
    // Only when the library is set up without SHA-256 or memory is exhausted.
    // A made-up digest would let ranks agree on different plans.
    std::fputs("skrull: OpenSSL failed to compute SHA-256\n", stderr);
    std::abort();
  }
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(hash), size));
}

v1::RankPlan RankPlanToProto(const RankPlan& plan) {
  v1::RankPlan proto;
  proto.set_job(plan.job);
  proto.set_step(plan.step);
  proto.set_attempt(plan.attempt);
  proto.set_digest(plan.digest);
  proto.set_rank(plan.rank);
  for (const RankMicroBatch& micro_batch : plan.micro_batches) {
    v1::RankMicroBatch* out = proto.add_micro_batches();
    for (const RankSegment& segment : micro_batch.segments) {
      SegmentToProto(segment, out->add_segments());
    }
    out->set_row_count(micro_batch.row_count);
    out->set_token_count(micro_batch.token_count);
    out->set_token_weight(micro_batch.token_weight);
  }
  for (Block block : plan.blocks) BlockToProto(block, proto.add_blocks());
  proto.set_batch_token_count(plan.batch_token_count);
  proto.set_predicted_seconds(plan.predicted_seconds);
  if (plan.chunk_plan) {
    RankChunkPlanToProto(*plan.chunk_plan, proto.mutable_chunk_plan());
  }
  return proto;
}

}  // namespace skrull
