// Job specs and the planner in process of skrull_client.h.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/batch.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/cli/report_data.h"
#include "skrull/client/local_planner.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/server/convert.h"

namespace skrull::client_c {
namespace {

// A name that lives for ever.
const char* PolicyNameOf(Policy policy) {
  return v1::Policy_Name(PolicyToProto(policy)).c_str();
}

absl::StatusOr<Job> ParseJob(const char* job_spec_text) {
  absl::Status given = NotNull(job_spec_text, "job_spec_text");
  if (!given.ok()) return given;
  const absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(job_spec_text);
  absl::StatusOr<Job> job = spec.ok() ? JobFromProto(*spec) : spec.status();
  if (job.ok()) return job;
  // The planner's detail as clients show it.
  return client_internal::StatusFromWire(StatusToProto(job.status()));
}

skrull_client_job_spec Describe(const Job& job, skrull_client_job_spec spec) {
  const ParallelismSpec& parallelism = job.parallelism();
  const ModelSpec& model = job.spec().model;
  spec.dp_size = parallelism.dp_size;
  spec.cp_size = parallelism.cp_size;
  spec.tp_size = parallelism.tp_size;
  spec.pp_size = parallelism.pp_size;
  spec.bucket_size_tokens = job.bucket_size();
  spec.longest_sequence = job.longest_sequence();
  spec.hidden_size = model.hidden_size.value_or(0);
  spec.layer_count = model.layer_count.value_or(0);
  spec.q_heads = model.attention_head_count.value_or(0);
  spec.kv_heads = model.kv_head_count.value_or(0);
  spec.head_dim = model.head_dim.value_or(0);
  spec.policy = PolicyNameOf(job.policy());
  return spec;
}

absl::StatusOr<std::unique_ptr<skrull_client_planner>> MakePlanner(
    const skrull_client_planner_options& options) {
  absl::Status given = NotNull(options.job_spec_text, "job_spec_text");
  if (!given.ok()) return given;
  absl::StatusOr<std::unique_ptr<LocalPlanner>> planner =
      LocalPlanner::Create(options.job_spec_text, options.calibration_epoch);
  if (!planner.ok()) return planner.status();
  return std::make_unique<skrull_client_planner>(
      skrull_client_planner{*std::move(planner)});
}

absl::StatusOr<std::unique_ptr<skrull_client_plan>> MakeLocalPlan(
    const skrull_client_planner& planner, const skrull_client_batch& batch) {
  absl::StatusOr<PlanResult> plan =
      planner.planner->PlanBatch({.job = Text(batch.job),
                                  .step = batch.step,
                                  .attempt = batch.attempt,
                                  .lengths = LengthsOf(batch),
                                  .policy = Text(batch.policy)});
  if (!plan.ok()) return plan.status();
  return MakePlanHandle(*std::move(plan));
}

absl::StatusOr<std::unique_ptr<skrull_client_bytes>> MakeReport(
    const skrull_client_plan& plan, const char* job_spec_text) {
  const absl::StatusOr<Job> job = ParseJob(job_spec_text);
  if (!job.ok()) return job.status();
  const absl::StatusOr<v1::Plan> message = ParsePlan(plan.result);
  if (!message.ok()) return message.status();
  if (message->has_chunk_plan()) {
    return absl::UnimplementedError(
        "a plan of POLICY_CHUNK_FLOW has chunks, which are not drawn");
  }
  const absl::StatusOr<Plan> native = PlanFromProto(*message);
  if (!native.ok()) return native.status();
  const absl::Status legal = CheckPlan(*job, plan.lengths, *native);
  if (!legal.ok()) {
    return InvalidField("plan", absl::StrCat("is not one of this job: ",
                                             std::string(legal.message())));
  }
  return std::make_unique<skrull_client_bytes>(skrull_client_bytes{
      cli::ReportPage(cli::ReportData(*job, plan.lengths, *native))});
}

}  // namespace
}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_client_describe_job_spec(const char* job_spec_text,
                                        skrull_client_job_spec* spec) {
  return Call([&]() -> absl::Status {
    skrull_client_job_spec filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(spec, "spec", &filled));
    const absl::StatusOr<skrull::Job> job = ParseJob(job_spec_text);
    if (!job.ok()) return job.status();
    *spec = Describe(*job, filled);
    return absl::OkStatus();
  });
}

int32_t skrull_client_planner_create(
    const skrull_client_planner_options* options,
    skrull_client_planner** planner) {
  return Call([&]() -> absl::Status {
    skrull_client_planner_options read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(planner, "planner"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(options, "options", &read));
    return GiveOut(MakePlanner(read), planner);
  });
}

void skrull_client_planner_destroy(skrull_client_planner* planner) {
  delete planner;
}

int32_t skrull_client_planner_plan(const skrull_client_planner* planner,
                                   const skrull_client_batch* batch,
                                   skrull_client_plan** plan) {
  return Call([&]() -> absl::Status {
    skrull_client_batch read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(planner, "planner"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadBatch(batch, &read));
    return GiveOut(MakeLocalPlan(*planner, read), plan);
  });
}

int32_t skrull_client_plan_report(const skrull_client_plan* plan,
                                  const char* job_spec_text,
                                  skrull_client_bytes** html) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(html, "html"));
    return GiveOut(MakeReport(*plan, job_spec_text), html);
  });
}

}  // extern "C"
