#include "skrull/client/internal/wire.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "skrull/client/internal/chunk_wire.h"
#include "skrull/client/internal/status_wire.h"

namespace skrull::client_internal {
namespace {

constexpr double kMaxDurationSeconds = 315'576'000'000;
constexpr int kMaxTextDepth = 32;

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? message
                     : absl::StrCat("line ", line + 1, ", column ", column + 1,
                                    ": ", message);
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The bytes that digests are taken of and that every caller gets alike.
std::string DeterministicBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::Status SetSeconds(const std::optional<double>& seconds,
                        const std::string& field,
                        google::protobuf::Duration* wire) {
  if (!(*seconds >= 0 && *seconds <= kMaxDurationSeconds)) {
    return InvalidField(field, absl::StrCat(*seconds, " s is not a duration"));
  }
  const double whole = std::floor(*seconds);
  wire->set_seconds(static_cast<int64_t>(whole));
  wire->set_nanos(static_cast<int32_t>((*seconds - whole) * 1e9));
  return absl::OkStatus();
}

double Seconds(const google::protobuf::Duration& wire) {
  return static_cast<double>(wire.seconds()) +
         1e-9 * static_cast<double>(wire.nanos());
}

v1::StepOutcome OutcomeToWire(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::kOk:
      return v1::STEP_OUTCOME_OK;
    case StepOutcome::kOutOfMemory:
      return v1::STEP_OUTCOME_OUT_OF_MEMORY;
    case StepOutcome::kFailed:
      return v1::STEP_OUTCOME_FAILED;
  }
  return v1::STEP_OUTCOME_UNSPECIFIED;
}

}  // namespace

absl::Status InvalidField(const std::string& field,
                          const std::string& problem) {
  return MakeStatus(absl::StatusCode::kInvalidArgument,
                    absl::StrCat(field, ": ", problem),
                    {.reason = "FIELD_INVALID", .field = field});
}

absl::StatusOr<v1::JobSpec> ParseSpecText(const std::string& text) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxTextDepth);
  v1::JobSpec spec;
  if (!parser.ParseFromString(text, &spec)) {
    return InvalidField("job_spec", error.text());
  }
  return spec;
}

absl::StatusOr<v1::Policy> PolicyFromName(const std::string& name) {
  v1::Policy policy = v1::POLICY_UNSPECIFIED;
  if (name.empty()) return policy;
  if (v1::Policy_Parse(name, &policy) && policy != v1::POLICY_UNSPECIFIED) {
    return policy;
  }
  std::string names;
  for (int value = 1; value <= v1::Policy_MAX; ++value) {
    if (!v1::Policy_IsValid(value)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    v1::Policy_Name(static_cast<v1::Policy>(value)));
  }
  return InvalidField("policy",
                      absl::StrCat("\"", name, "\" is none of ", names));
}

absl::StatusOr<v1::PlanBatchRequest> BatchToWire(const PlanRequest& request) {
  v1::PlanBatchRequest wire;
  wire.set_job(request.job);
  if (!request.job_spec_text.empty()) {
    absl::StatusOr<v1::JobSpec> spec = ParseSpecText(request.job_spec_text);
    if (!spec.ok()) return spec.status();
    *wire.mutable_job_spec() = *std::move(spec);
  }
  wire.set_generation(request.generation);
  wire.set_step(request.step);
  wire.set_attempt(request.attempt);
  wire.mutable_lengths()->Assign(request.lengths.begin(),
                                 request.lengths.end());
  absl::StatusOr<v1::Policy> policy = PolicyFromName(request.policy);
  if (!policy.ok()) return policy.status();
  wire.set_policy(*policy);
  wire.set_validate_only(request.validate_only);
  return wire;
}

absl::StatusOr<v1::StepReport> ReportToWire(const StepReport& report) {
  v1::StepReport wire;
  wire.set_step(report.step);
  wire.set_attempt(report.attempt);
  wire.set_rank(report.rank);
  wire.set_outcome(OutcomeToWire(report.outcome));
  absl::Status status;
  if (report.step_seconds) {
    status.Update(SetSeconds(report.step_seconds, "report.step_time",
                             wire.mutable_step_time()));
  }
  if (report.attention_seconds) {
    status.Update(SetSeconds(report.attention_seconds, "report.attention_time",
                             wire.mutable_attention_time()));
  }
  if (report.exchange_seconds) {
    status.Update(SetSeconds(report.exchange_seconds, "report.exchange_time",
                             wire.mutable_exchange_time()));
  }
  if (!status.ok()) return status;
  wire.set_peak_bytes(report.peak_bytes);
  return wire;
}

CalibrationInfo CalibrationFromWire(const v1::Calibration& wire) {
  CalibrationInfo info;
  info.epoch = wire.epoch();
  info.cause = v1::CalibrationCause_Name(wire.cause());
  info.step = wire.step();
  info.attempt = wire.attempt();
  const auto set = [](bool has, auto value, auto* out) {
    if (has) *out = value;
  };
  set(wire.has_seconds_per_flop(), wire.seconds_per_flop(),
      &info.seconds_per_flop);
  set(wire.has_seconds_per_micro_batch(), wire.seconds_per_micro_batch(),
      &info.seconds_per_micro_batch);
  set(wire.has_link_scale(), wire.link_scale(), &info.link_scale);
  set(wire.has_bytes_per_token(), wire.bytes_per_token(),
      &info.bytes_per_token);
  set(wire.has_static_bytes(), wire.static_bytes(), &info.static_bytes);
  set(wire.has_bucket_size_tokens(), wire.bucket_size_tokens(),
      &info.bucket_size_tokens);
  set(wire.has_out_of_memory_tokens(), wire.out_of_memory_tokens(),
      &info.out_of_memory_tokens);
  set(wire.has_error_before(), wire.error_before(), &info.error_before);
  set(wire.has_error_after(), wire.error_after(), &info.error_after);
  info.text = wire.text();
  return info;
}

JobInfo JobFromWire(const v1::Job& wire) {
  JobInfo job;
  job.name = wire.name();
  google::protobuf::TextFormat::PrintToString(wire.spec(), &job.job_spec_text);
  job.generation = wire.generation();
  job.calibration_epoch = wire.calibration_epoch();
  job.create_time = TimeFromWire(wire.create_time());
  job.owner = wire.owner();
  job.calibration = CalibrationFromWire(wire.calibration());
  google::protobuf::TextFormat::PrintToString(wire.calibrated_spec(),
                                              &job.calibrated_spec_text);
  return job;
}

PlanResult PlanFromWire(const v1::Plan& wire) {
  PlanResult result;
  result.job = wire.job();
  result.step = wire.step();
  result.attempt = wire.attempt();
  result.digest = wire.digest();
  result.policy = v1::Policy_Name(wire.policy());
  result.calibration_epoch = wire.calibration_epoch();
  const v1::PlanSummary& summary = wire.summary();
  result.figures = {.predicted_seconds = summary.predicted_seconds(),
                    .lower_bound_seconds = summary.lower_bound_seconds(),
                    .roll_back_count = summary.roll_back_count(),
                    .sharded_sequence_count = summary.sharded_sequence_count(),
                    .sharded_token_count = summary.sharded_token_count(),
                    .micro_batch_count = summary.micro_batch_count(),
                    .max_rank_tokens = summary.max_rank_tokens(),
                    .dp_imbalance = summary.dp_imbalance(),
                    .rank_imbalance = summary.rank_imbalance(),
                    .pipeline_seconds = summary.pipeline_seconds(),
                    .pipeline_bubble = summary.pipeline_bubble()};
  result.plan_bytes = DeterministicBytes(wire);
  return result;
}

absl::StatusOr<PlanResult> PlanFromWire(const v1::PlanBatchResponse& wire) {
  if (!wire.has_plan()) {
    return absl::InternalError("the daemon's answer holds no plan");
  }
  PlanResult result = PlanFromWire(wire.plan());
  if (wire.has_planning_time()) {
    result.planning_seconds = Seconds(wire.planning_time());
  }
  result.committed = wire.committed();
  return result;
}

absl::StatusOr<RankPlan> RankPlanFromWire(const v1::RankPlan& wire) {
  RankPlan plan;
  plan.job = wire.job();
  plan.step = wire.step();
  plan.attempt = wire.attempt();
  plan.digest = wire.digest();
  plan.rank = wire.rank();
  plan.micro_batches.reserve(static_cast<size_t>(wire.micro_batches_size()));
  for (const v1::RankMicroBatch& from : wire.micro_batches()) {
    RankMicroBatch micro_batch;
    micro_batch.segments.reserve(static_cast<size_t>(from.segments_size()));
    for (const v1::RankSegment& segment : from.segments()) {
      micro_batch.segments.push_back(SegmentFromWire(segment));
    }
    micro_batch.row_count = from.row_count();
    micro_batch.token_count = from.token_count();
    micro_batch.token_weight = from.token_weight();
    plan.micro_batches.push_back(std::move(micro_batch));
  }
  for (const v1::Block& from : wire.blocks()) {
    plan.blocks.push_back(
        {.first_rank = from.first_rank(), .degree = from.degree()});
  }
  plan.batch_token_count = wire.batch_token_count();
  plan.predicted_seconds = wire.predicted_seconds();
  if (wire.has_chunk_plan()) {
    plan.chunk_plan = RankChunkPlanFromWire(wire.chunk_plan());
    if (!plan.chunk_plan) {
      return absl::InternalError(
          "the daemon's answer holds an operation on a chunk that this client "
          "does not know");
    }
  }
  return plan;
}

}  // namespace skrull::client_internal
