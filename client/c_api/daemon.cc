// Calls to a daemon of skrull_client.h.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/batch.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/c_api/report.h"
#include "skrull/client/planner_client.h"

namespace skrull::client_c {
namespace {

absl::StatusOr<ClientOptions> ReadOptions(
    const skrull_client_daemon_options& given) {
  ClientOptions options;
  options.address = Text(given.address);
  const auto timeout = ToTimeout("timeout_seconds", given.timeout_seconds);
  if (!timeout.ok()) return timeout.status();
  options.timeout = timeout->value_or(options.timeout);
  if (given.unreachable_after_seconds < 0) {
    options.unreachable_after = std::chrono::milliseconds(0);
  } else {
    const auto after =
        ToTimeout("unreachable_after_seconds", given.unreachable_after_seconds);
    if (!after.ok()) return after.status();
    options.unreachable_after = after->value_or(options.unreachable_after);
  }
  if (given.prefetch_depth != 0) options.prefetch_depth = given.prefetch_depth;
  options.tls_ca_file = Text(given.tls_ca_file);
  options.tls_cert_file = Text(given.tls_cert_file);
  options.tls_key_file = Text(given.tls_key_file);
  options.tls_server_name = Text(given.tls_server_name);
  options.token = Text(given.token);
  options.token_file = Text(given.token_file);
  if (given.allow_plaintext_token != 0 && given.allow_plaintext_token != 1) {
    return InvalidField(
        "allow_plaintext_token",
        absl::StrCat("must be 0 or 1, is ", given.allow_plaintext_token));
  }
  options.allow_plaintext_token = given.allow_plaintext_token == 1;
  return options;
}

absl::StatusOr<std::unique_ptr<skrull_client_daemon>> MakeDaemon(
    const skrull_client_daemon_options& given) {
  const absl::StatusOr<ClientOptions> options = ReadOptions(given);
  if (!options.ok()) return options.status();
  absl::StatusOr<std::unique_ptr<PlannerClient>> client =
      PlannerClient::Create(*options);
  if (!client.ok()) return client.status();
  return std::make_unique<skrull_client_daemon>(
      skrull_client_daemon{*std::move(client)});
}

// What every call to a daemon begins with: runs `work(client, options)`.
template <class Work>
int32_t CallDaemon(skrull_client_daemon* daemon, double timeout_seconds,
                   const Work& work) noexcept {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(daemon, "daemon"));
    const auto timeout = ToTimeout("timeout_seconds", timeout_seconds);
    if (!timeout.ok()) return timeout.status();
    return work(*daemon->client, CallOptions{.timeout = *timeout});
  });
}

absl::Status GiveJob(absl::StatusOr<JobInfo> info, skrull_client_job** job) {
  if (!info.ok()) return info.status();
  *job =
      std::make_unique<skrull_client_job>(skrull_client_job{*std::move(info)})
          .release();
  return absl::OkStatus();
}

}  // namespace
}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface
using skrull::CallOptions;
using skrull::PlannerClient;

extern "C" {

int32_t skrull_client_daemon_create(const skrull_client_daemon_options* options,
                                    skrull_client_daemon** daemon) {
  return Call([&]() -> absl::Status {
    skrull_client_daemon_options read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(daemon, "daemon"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(options, "options", &read));
    return GiveOut(MakeDaemon(read), daemon);
  });
}

void skrull_client_daemon_destroy(skrull_client_daemon* daemon) {
  delete daemon;
}

int32_t skrull_client_daemon_check_health(skrull_client_daemon* daemon,
                                          double timeout_seconds) {
  return CallDaemon(daemon, timeout_seconds,
                    [](PlannerClient& client, const CallOptions& call) {
                      return client.CheckHealth(call);
                    });
}

int32_t skrull_client_daemon_create_job(
    skrull_client_daemon* daemon, const char* name, const char* job_spec_text,
    int64_t generation, double timeout_seconds, skrull_client_job** job) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(job, "job"));
        return GiveJob(
            client.CreateJob(Text(name), Text(job_spec_text), generation, call),
            job);
      });
}

int32_t skrull_client_daemon_get_job(skrull_client_daemon* daemon,
                                     const char* name, double timeout_seconds,
                                     skrull_client_job** job) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(job, "job"));
        return GiveJob(client.GetJob(Text(name), call), job);
      });
}

int32_t skrull_client_job_describe(const skrull_client_job* job,
                                   skrull_client_job_info* info) {
  return Call([&]() -> absl::Status {
    skrull_client_job_info filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(job, "job"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(info, "info", &filled));
    filled.name = job->info.name.c_str();
    filled.owner = job->info.owner.c_str();
    filled.job_spec_text = job->info.job_spec_text.c_str();
    filled.calibrated_spec_text = job->info.calibrated_spec_text.c_str();
    filled.generation = job->info.generation;
    filled.calibration_epoch = job->info.calibration_epoch;
    *info = filled;
    return absl::OkStatus();
  });
}

void skrull_client_job_destroy(skrull_client_job* job) { delete job; }

int32_t skrull_client_daemon_plan(skrull_client_daemon* daemon,
                                  const skrull_client_batch* batch,
                                  double timeout_seconds,
                                  skrull_client_plan** plan) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        skrull_client_batch read;
        SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
        SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadBatch(batch, &read));
        absl::StatusOr<skrull::PlanResult> result =
            client.PlanBatch({.job = Text(read.job),
                              .generation = read.generation,
                              .step = read.step,
                              .attempt = read.attempt,
                              .lengths = LengthsOf(read),
                              .policy = Text(read.policy)},
                             call);
        if (!result.ok()) return result.status();
        return GiveOut(MakePlanHandle(*std::move(result)), plan);
      });
}

int32_t skrull_client_daemon_rank_plan(skrull_client_daemon* daemon,
                                       const skrull_client_batch* batch,
                                       int32_t rank, double timeout_seconds,
                                       skrull_client_rank_plan** rank_plan) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        skrull_client_batch read;
        SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(rank_plan, "rank_plan"));
        SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadBatch(batch, &read));
        absl::StatusOr<skrull::RankPlan> share =
            client.GetRankPlan({.job = Text(read.job),
                                .generation = read.generation,
                                .step = read.step,
                                .attempt = read.attempt,
                                .rank = rank},
                               call);
        if (!share.ok()) return share.status();
        *rank_plan = MakeRankPlanHandle(*std::move(share)).release();
        return absl::OkStatus();
      });
}

int32_t skrull_client_daemon_report(skrull_client_daemon* daemon,
                                    const skrull_client_step_report* report,
                                    double timeout_seconds,
                                    skrull_client_report_answer* answer) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        skrull_client_step_report read;
        SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(report, "report", &read));
        return SendReport(read, answer, [&](const skrull::StepReport& told) {
          return client.ReportStep(Text(read.job), read.generation, told, call);
        });
      });
}

int32_t skrull_client_daemon_meet(skrull_client_daemon* daemon,
                                  const skrull_client_meeting* meeting,
                                  double timeout_seconds,
                                  skrull_client_bytes** offer) {
  return CallDaemon(
      daemon, timeout_seconds,
      [&](PlannerClient& client, const CallOptions& call) -> absl::Status {
        skrull_client_meeting read;
        SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(offer, "offer"));
        SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(meeting, "meeting", &read));
        constexpr int64_t kMostBytes = 4096;
        if (read.offer_bytes < 0 || read.offer_bytes > kMostBytes) {
          return InvalidField(
              "offer_bytes",
              absl::StrCat("must be 0 .. 4096, is ", read.offer_bytes));
        }
        if (read.offer_bytes > 0) {
          SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(read.offer, "meeting.offer"));
        }
        skrull::RendezvousRequest request;
        request.job = Text(read.job);
        request.generation = read.generation;
        request.key = Text(read.key);
        request.size = read.size;
        request.rank = read.rank;
        request.offer.assign(read.offer_bytes > 0 ? read.offer : "",
                             static_cast<size_t>(read.offer_bytes));
        absl::StatusOr<std::string> met = client.Rendezvous(request, call);
        if (!met.ok()) return met.status();
        *offer = std::make_unique<skrull_client_bytes>(
                     skrull_client_bytes{*std::move(met)})
                     .release();
        return absl::OkStatus();
      });
}

}  // extern "C"
