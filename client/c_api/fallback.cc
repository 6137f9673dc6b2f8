// A daemon, or this process while it is away, of skrull_client.h.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/batch.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/c_api/report.h"
#include "skrull/client/fallback_planner.h"

namespace skrull::client_c {
namespace {

absl::StatusOr<std::unique_ptr<skrull_client_fallback>> MakeFallback(
    const skrull_client_daemon& daemon, const skrull_client_job& job) {
  absl::StatusOr<std::unique_ptr<FallbackPlanner>> planner =
      FallbackPlanner::Create(daemon.client.get(), job.info);
  if (!planner.ok()) return planner.status();
  return std::make_unique<skrull_client_fallback>(
      skrull_client_fallback{daemon.client, *std::move(planner)});
}

// Job and generation are those that the handle was made for.
absl::Status CheckOwnJob(const char* job, int64_t generation) {
  if (job != nullptr) {
    return InvalidField("job", "is the fallback's, and must be NULL");
  }
  if (generation == 0) return absl::OkStatus();
  return InvalidField("generation", "is the fallback's, and must be 0");
}

absl::StatusOr<std::unique_ptr<skrull_client_plan>> MakeFallbackPlan(
    skrull_client_fallback& fallback, const skrull_client_batch& batch,
    double timeout_seconds) {
  const auto timeout = ToTimeout("timeout_seconds", timeout_seconds);
  if (!timeout.ok()) return timeout.status();
  absl::StatusOr<FallbackPlan> made =
      fallback.planner->PlanBatch({.step = batch.step,
                                   .attempt = batch.attempt,
                                   .lengths = LengthsOf(batch),
                                   .policy = Text(batch.policy)},
                                  {.timeout = *timeout});
  if (!made.ok()) return made.status();
  absl::StatusOr<std::unique_ptr<skrull_client_plan>> plan =
      MakePlanHandle(std::move(made->plan));
  if (plan.ok() && made->in_process) {
    (*plan)->fallback_reason =
        absl::StrCat(absl::StatusCodeToString(made->daemon.code()), ": ",
                     std::string(made->daemon.message()));
  }
  return plan;
}

}  // namespace
}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_client_fallback_create(skrull_client_daemon* daemon,
                                      const skrull_client_job* job,
                                      skrull_client_fallback** fallback) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(daemon, "daemon"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(job, "job"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(fallback, "fallback"));
    return GiveOut(MakeFallback(*daemon, *job), fallback);
  });
}

void skrull_client_fallback_destroy(skrull_client_fallback* fallback) {
  delete fallback;
}

int32_t skrull_client_fallback_plan(skrull_client_fallback* fallback,
                                    const skrull_client_batch* batch,
                                    double timeout_seconds,
                                    skrull_client_plan** plan) {
  return Call([&]() -> absl::Status {
    skrull_client_batch read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(fallback, "fallback"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadBatch(batch, &read));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(CheckOwnJob(read.job, read.generation));
    return GiveOut(MakeFallbackPlan(*fallback, read, timeout_seconds), plan);
  });
}

int32_t skrull_client_fallback_report(skrull_client_fallback* fallback,
                                      const skrull_client_step_report* report,
                                      double timeout_seconds,
                                      skrull_client_report_answer* answer) {
  return Call([&]() -> absl::Status {
    skrull_client_step_report read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(fallback, "fallback"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(report, "report", &read));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(CheckOwnJob(read.job, read.generation));
    const auto timeout = ToTimeout("timeout_seconds", timeout_seconds);
    if (!timeout.ok()) return timeout.status();
    return SendReport(read, answer, [&](const skrull::StepReport& told) {
      return fallback->planner->ReportStep(told, {.timeout = *timeout});
    });
  });
}

}  // extern "C"
