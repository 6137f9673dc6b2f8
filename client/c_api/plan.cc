// Plans of skrull_client.h, whoever made them.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/cli/plan_json.h"
#include "skrull/client/internal/wire.h"
#include "skrull/server/convert.h"

namespace skrull::client_c {
namespace {

// Each sequence's length, by its index. Errors: INVALID_ARGUMENT for an index
// that no batch of the plan's placements has.
absl::StatusOr<std::vector<int64_t>> LengthsOf(const v1::Plan& plan) {
  std::vector<int64_t> lengths;
  int64_t most = plan.chunk_plan().chunks_size();
  for (const v1::MicroBatch& mb : plan.micro_batches()) {
    most += mb.placements_size();
  }
  for (const v1::Chunk& chunk : plan.chunk_plan().chunks()) {
    most += chunk.pieces_size();
  }
  const auto place = [&](int32_t sequence, int32_t token_count) {
    if (sequence < 0 || sequence >= most) return false;
    const auto index = static_cast<size_t>(sequence);
    if (index >= lengths.size()) lengths.resize(index + 1);
    lengths[index] = token_count;
    return true;
  };
  bool legal = true;
  for (const v1::MicroBatch& mb : plan.micro_batches()) {
    for (const v1::Placement& placement : mb.placements()) {
      legal = legal && place(placement.sequence(), placement.token_count());
    }
  }
  for (const v1::Chunk& chunk : plan.chunk_plan().chunks()) {
    for (const v1::ChunkPiece& piece : chunk.pieces()) {
      legal = legal && place(piece.sequence(), piece.token_count());
    }
  }
  if (!legal) return InvalidField("plan", "has a sequence out of range");
  return lengths;
}

absl::StatusOr<std::unique_ptr<skrull_client_plan>> ParseHandle(
    const char* bytes, int64_t byte_count) {
  absl::Status given = NotNull(bytes, "bytes");
  if (!given.ok()) return given;
  constexpr int64_t kMostBytes = INT32_MAX;  // protobuf's own limit
  v1::Plan plan;
  if (byte_count < 0 || byte_count > kMostBytes ||
      !plan.ParseFromArray(bytes, static_cast<int>(byte_count)) ||
      (plan.micro_batches().empty() && !plan.has_chunk_plan())) {
    return InvalidField("bytes", "not a skrull.v1.Plan");
  }
  if (PlanDigest(plan) != plan.digest()) {
    return InvalidField("bytes", "not the plan whose digest they name");
  }
  return MakePlanHandle(client_internal::PlanFromWire(plan));
}

skrull_client_plan_info Describe(const skrull_client_plan& plan,
                                 skrull_client_plan_info info) {
  const PlanResult& result = plan.result;
  const PlanFigures& figures = result.figures;
  info.job = result.job.c_str();
  info.digest = result.digest.c_str();
  info.policy = result.policy.c_str();
  info.bytes = result.plan_bytes.data();
  info.byte_count = static_cast<int64_t>(result.plan_bytes.size());
  info.step = result.step;
  info.attempt = result.attempt;
  info.committed = result.committed ? 1 : 0;
  info.calibration_epoch = result.calibration_epoch;
  info.sequence_count = static_cast<int64_t>(plan.lengths.size());
  info.planning_seconds = result.planning_seconds.value_or(-1);
  info.predicted_seconds = figures.predicted_seconds;
  info.lower_bound_seconds = figures.lower_bound_seconds;
  info.dp_imbalance = figures.dp_imbalance;
  info.rank_imbalance = figures.rank_imbalance;
  info.pipeline_seconds = figures.pipeline_seconds;
  info.pipeline_bubble = figures.pipeline_bubble;
  info.roll_back_count = figures.roll_back_count;
  info.sharded_sequence_count = figures.sharded_sequence_count;
  info.sharded_token_count = figures.sharded_token_count;
  info.micro_batch_count = figures.micro_batch_count;
  info.max_rank_tokens = figures.max_rank_tokens;
  info.fallback_reason = plan.fallback_reason.c_str();
  return info;
}

}  // namespace

absl::StatusOr<v1::Plan> ParsePlan(const PlanResult& result) {
  v1::Plan plan;
  if (!plan.ParseFromString(result.plan_bytes)) {
    return absl::InternalError("the bytes of the plan are no skrull.v1.Plan");
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<skrull_client_plan>> MakePlanHandle(
    PlanResult result) {
  absl::StatusOr<v1::Plan> plan = ParsePlan(result);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::vector<int64_t>> lengths = LengthsOf(*plan);
  if (!lengths.ok()) return lengths.status();
  return std::make_unique<skrull_client_plan>(
      skrull_client_plan{std::move(result), *std::move(lengths), {}});
}

}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface

extern "C" {

const char* skrull_client_bytes_data(const skrull_client_bytes* bytes) {
  return bytes != nullptr ? bytes->value.c_str() : "";
}

int64_t skrull_client_bytes_size(const skrull_client_bytes* bytes) {
  return bytes != nullptr ? static_cast<int64_t>(bytes->value.size()) : 0;
}

void skrull_client_bytes_destroy(skrull_client_bytes* bytes) { delete bytes; }

int32_t skrull_client_plan_parse(const char* bytes, int64_t byte_count,
                                 skrull_client_plan** plan) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    return GiveOut(ParseHandle(bytes, byte_count), plan);
  });
}

void skrull_client_plan_destroy(skrull_client_plan* plan) { delete plan; }

int32_t skrull_client_plan_describe(const skrull_client_plan* plan,
                                    skrull_client_plan_info* info) {
  return Call([&]() -> absl::Status {
    skrull_client_plan_info filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(info, "info", &filled));
    *info = Describe(*plan, filled);
    return absl::OkStatus();
  });
}

int32_t skrull_client_plan_lengths(const skrull_client_plan* plan,
                                   int64_t* lengths, int64_t count) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    const auto size = static_cast<int64_t>(plan->lengths.size());
    if (count != size) {
      return InvalidField(
          "count", absl::StrCat("is ", count, ", where there are ", size));
    }
    if (size > 0) SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(lengths, "lengths"));
    std::copy(plan->lengths.begin(), plan->lengths.end(), lengths);
    return absl::OkStatus();
  });
}

int32_t skrull_client_plan_json(const skrull_client_plan* plan,
                                skrull_client_bytes** json) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(json, "json"));
    const absl::StatusOr<skrull::v1::Plan> message = ParsePlan(plan->result);
    if (!message.ok()) return message.status();
    auto bytes = std::make_unique<skrull_client_bytes>();
    skrull::cli::AppendJson(*message, &bytes->value);
    *json = bytes.release();
    return absl::OkStatus();
  });
}

}  // extern "C"
