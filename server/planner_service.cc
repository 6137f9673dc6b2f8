#include "skrull/server/planner_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "skrull/planner/error.h"
#include "skrull/server/auth/grpc_security.h"
#include "skrull/server/batch_request.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/convert.h"
#include "skrull/server/deadline.h"
#include "skrull/server/plan_client.h"
#include "skrull/server/plan_wire.h"

namespace skrull {
namespace {

using std::chrono::steady_clock;

// For a call that waits for others and has no deadline of its own.
constexpr std::chrono::seconds kDefaultWait{30};
// For any other call; queues are bounded, so this is never the limit that
// tells.
constexpr std::chrono::hours kNoDeadline{1};
constexpr int32_t kMaxPageSize = 1000;
constexpr int32_t kDefaultPageSize = 100;

void RecordToProto(const JobRecord& record, v1::Job* job) {
  job->set_name(record.name);
  *job->mutable_spec() = record.spec;
  job->set_generation(record.generation);
  job->set_calibration_epoch(record.calibration.epoch());
  *job->mutable_create_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
          record.create_time_micros);
  job->set_owner(record.owner);
  *job->mutable_calibration() = record.calibration;
  *job->mutable_calibrated_spec() =
      ApplyCalibration(record.spec, record.calibration);
}

// A job that the caller may use.
absl::StatusOr<std::shared_ptr<RegisteredJob>> FindJob(const Caller& who,
                                                       const std::string& name,
                                                       int64_t generation,
                                                       JobDirectory* jobs) {
  absl::Status status = ValidateJobName(name, "job");
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      jobs->FindFor(who, Access::kUse, name);
  if (!job.ok()) return job;
  status = (*job)->CheckGeneration(generation);
  if (!status.ok()) return status;
  return job;
}

absl::Status CheckInteger(const std::string& field, int64_t value,
                          int64_t first, int64_t last) {
  if (value >= first && value <= last) return absl::OkStatus();
  return MakeError(
      {.reason = ErrorReason::kFieldInvalid, .field = field, .limit = last},
      absl::StrCat(field, ": must be in ", first, " .. ", last, ", is ",
                   value));
}

// The job of a request that is in range for it.
absl::StatusOr<std::shared_ptr<RegisteredJob>> FindRankJob(
    const Caller& who, const v1::GetRankPlanRequest& request,
    JobDirectory* jobs) {
  absl::Status status = CheckStep(request.step(), request.attempt());
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      FindJob(who, request.job(), request.generation(), jobs);
  if (!job.ok()) return job;
  status =
      CheckInteger("rank", request.rank(), 0, (*job)->job().pool().ranks() - 1);
  if (!status.ok()) return status;
  return job;
}

absl::StatusOr<std::shared_ptr<RegisteredJob>> FindRendezvousJob(
    const Caller& who, const v1::RendezvousRequest& request,
    JobDirectory* jobs) {
  absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      FindJob(who, request.job(), request.generation(), jobs);
  if (!job.ok()) return job;
  absl::Status status = ValidateJobName(request.key(), "key");
  if (!status.ok()) return status;
  status =
      CheckInteger("size", request.size(), 1, (*job)->job().pool().ranks());
  if (!status.ok()) return status;
  status = CheckInteger("rank", request.rank(), 0, request.size() - 1);
  if (!status.ok()) return status;
  const auto bytes = static_cast<int64_t>(request.offer().size());
  if (request.rank() != 0 && bytes != 0) {
    return FieldError("offer", "must be empty: only rank 0 offers");
  }
  if (request.rank() == 0 && (bytes < 1 || bytes > kMaxOfferBytes)) {
    return MakeError({.reason = ErrorReason::kFieldInvalid,
                      .field = "offer",
                      .limit = kMaxOfferBytes},
                     absl::StrCat("offer: rank 0 offers 1 .. ", kMaxOfferBytes,
                                  " bytes, this has ", bytes));
  }
  return job;
}

// Fills one page of jobs with names after `after`.
void ListPage(const Caller& who, const std::string& after, int32_t page_size,
              JobDirectory* directory, v1::ListJobsResponse* response) {
  const JobDirectory::Page page = directory->ListFor(who, after, page_size);
  for (const auto& job : page.jobs) {
    RecordToProto(job->CurrentRecord(), response->add_jobs());
  }
  response->set_next_page_token(absl::WebSafeBase64Escape(page.next));
}

// When a wait is answered: a little before the call's own deadline, at which
// gRPC would cut it off without our message.
steady_clock::time_point WaitDeadline(
    const grpc::CallbackServerContext& context, const Backend& backend) {
  const bool has_deadline =
      context.deadline() != std::chrono::system_clock::time_point::max();
  const std::chrono::duration<double> longest(
      has_deadline ? backend.options().max_wait_seconds
                   : std::min<double>(kDefaultWait.count(),
                                      backend.options().max_wait_seconds));
  const auto now = backend.clock().MonotonicNow();
  const auto deadline = CallDeadline(context, backend.clock(), longest);
  const steady_clock::duration margin = std::chrono::milliseconds(200);
  return deadline - std::clamp((deadline - now) / 10,
                               steady_clock::duration::zero(), margin);
}

}  // namespace

PlannerService::PlannerService(Backend* backend, const Security* security,
                               const Logger* logger)
    : backend_(backend),
      security_(security),
      log_(logger, &backend->clock(), backend->options().slow_call_seconds),
      services_{.metrics = backend->metrics(),
                .log = &log_,
                .clock = &backend->clock(),
                .request_ids = &request_ids_,
                .active = &active_},
      streams_(backend, security, services_) {}

std::optional<Caller> PlannerService::Admit(
    const grpc::CallbackServerContext& context, Access access,
    UnaryCall* call) const {
  absl::StatusOr<Caller> caller = AdmitCall(*security_, context, access);
  if (!caller.ok()) {
    call->Answer(caller.status());
    return std::nullopt;
  }
  call->SetCaller(caller->subject);
  return *std::move(caller);
}

grpc::ServerUnaryReactor* PlannerService::CreateJob(
    grpc::CallbackServerContext* context, const v1::CreateJobRequest* request,
    v1::Job* response) {
  UnaryCall* const call =
      NewCall(RpcMethod::kCreateJob, context, request->name());
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  backend_->CreateJob(
      *who, *request,
      [call, response](const absl::StatusOr<JobRecord>& record) {
        if (record.ok()) {
          RecordToProto(*record, response);
          call->Log(LogLevel::kInfo, "job_registered",
                    {{"generation", record->generation}});
        }
        call->Answer(record.status());
      });
  return call;
}

grpc::ServerUnaryReactor* PlannerService::GetJob(
    grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
    v1::Job* response) {
  UnaryCall* const call = NewCall(RpcMethod::kGetJob, context, request->name());
  const std::optional<Caller> who = Admit(*context, Access::kLook, call);
  if (!who) return call;
  const absl::Status named = ValidateJobName(request->name(), "name");
  if (!named.ok()) {
    call->Answer(named);
    return call;
  }
  backend_->WhenCurrent(
      [this, call, caller = *who, request, response](absl::Status status) {
        if (status.ok()) {
          const auto job =
              backend_->jobs().FindFor(caller, Access::kLook, request->name());
          status = job.status();
          if (job.ok()) RecordToProto((*job)->CurrentRecord(), response);
        }
        call->Answer(status);
      });
  return call;
}

grpc::ServerUnaryReactor* PlannerService::ListJobs(
    grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
    v1::ListJobsResponse* response) {
  UnaryCall* const call = NewCall(RpcMethod::kListJobs, context);
  const std::optional<Caller> who = Admit(*context, Access::kLook, call);
  if (!who) return call;
  const int32_t page_size =
      request->page_size() == 0 ? kDefaultPageSize : request->page_size();
  std::string after;
  if (page_size < 0 || page_size > kMaxPageSize) {
    call->Answer(
        FieldError("page_size", absl::StrCat("must be in 0 .. ", kMaxPageSize,
                                             ", is ", request->page_size())));
    return call;
  }
  // A token is the name of the last job looked at before the page.
  if (!absl::WebSafeBase64Unescape(request->page_token(), &after) ||
      (!after.empty() && !ValidateJobName(after, "page_token").ok())) {
    call->Answer(FieldError("page_token", "is not one this daemon gave out"));
    return call;
  }
  backend_->WhenCurrent([this, call, caller = *who, response, after,
                         page_size](const absl::Status& status) {
    if (status.ok())
      ListPage(caller, after, page_size, &backend_->jobs(), response);
    call->Answer(status);
  });
  return call;
}

grpc::ServerUnaryReactor* PlannerService::DeleteJob(
    grpc::CallbackServerContext* context, const v1::DeleteJobRequest* request,
    v1::DeleteJobResponse* /*response*/) {
  UnaryCall* const call =
      NewCall(RpcMethod::kDeleteJob, context, request->name());
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  backend_->DeleteJob(*who, *request, [call](const absl::Status& status) {
    if (status.ok()) call->Log(LogLevel::kInfo, "job_deleted");
    call->Answer(status);
  });
  return call;
}

grpc::ServerUnaryReactor* PlannerService::PlanBatch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  UnaryCall* const call = NewCall(RpcMethod::kPlanBatch, context);
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  if (!request->Valid()) {  // it never arrived
    call->Answer(
        MakeError({.reason = ErrorReason::kCancelled}, "the caller went away"));
    return call;
  }
  const auto size = static_cast<int64_t>(request->Length());
  const bool read_later = size > Backend::kMaxInlineBytes;
  std::string job;
  absl::StatusOr<v1::PlanBatchRequest> message = v1::PlanBatchRequest();
  if (read_later) {
    job = PeekJob(FirstBytes(*request, kJobPeekBytes));
  } else {
    message = ParsePlanRequest(*request);
    if (!message.ok()) {
      call->Answer(message.status());
      return call;
    }
    job = message->job();
  }
  call->SetJob(job);
  const auto caller = std::make_shared<PlanCaller>(
      CallDeadline(*context, backend_->clock(), kNoDeadline),
      [call, response](const PlanOutcome& result) {
        if (result.ok()) *response = EncodePlanResponse(*result);
        call->Answer(result.status());
      });
  call->OnGone([backend = backend_, caller] {
    caller->Complete(
        MakeError({.reason = ErrorReason::kCancelled}, "the caller went away"));
    backend->ForgetCaller(caller);
  });
  const PlanOrigin origin{.who = *who, .peer = PeerHost(context->peer())};
  if (read_later) {
    // The bytes are shared: they outlive the call if they must.
    backend_->PlanUnread(
        origin,
        {.request_bytes = size,
         .job = job,
         .read = [bytes = *request] { return ParsePlanRequest(bytes); }},
        caller);
  } else {
    backend_->PlanBatch(origin, *std::move(message), size, caller);
  }
  return call;
}

grpc::ServerBidiReactor<v1::StreamPlansRequest, v1::StreamPlansResponse>*
PlannerService::StreamPlans(grpc::CallbackServerContext* context) {
  return streams_.NewStream(
      context, BeginCall(RpcMethod::kStreamPlans, services_, context),
      CallDeadline(*context, backend_->clock(), kNoDeadline));
}

grpc::ServerUnaryReactor* PlannerService::GetRankPlan(
    grpc::CallbackServerContext* context, const v1::GetRankPlanRequest* request,
    v1::RankPlan* response) {
  UnaryCall* const call =
      NewCall(RpcMethod::kGetRankPlan, context, request->job());
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  backend_->WhenCurrent([this, call, caller = *who, context, request,
                         response](const absl::Status& current) {
    if (!current.ok()) return call->Answer(current);
    WaitForRankPlan(call, caller, *context, *request, response);
  });
  return call;
}

void PlannerService::WaitForRankPlan(UnaryCall* call, const Caller& who,
                                     const grpc::CallbackServerContext& context,
                                     const v1::GetRankPlanRequest& request,
                                     v1::RankPlan* response) {
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      FindRankJob(who, request, &backend_->jobs());
  if (!job.ok()) return call->Answer(job.status());
  const auto answer =
      [call, response, rank = request.rank()](
          const absl::StatusOr<std::shared_ptr<const CommittedPlan>>& plan) {
        if (plan.ok()) *response = RankPlanToProto((*plan)->Share(rank));
        call->Answer(plan.status());
      };
  const StepKey key{(*job)->id(), request.step(), request.attempt()};
  if (auto plan = backend_->FindPlan(key)) return answer(std::move(plan));
  // The request may be gone once the call can be answered.
  const PlanKey plan_key{request.job(), request.step(), request.attempt()};
  const auto wait = std::make_shared<PlanWait>(
      *job, key, WaitDeadline(context, *backend_), answer);
  call->OnGone([backend = backend_, wait] { backend->CancelWait(wait); });
  backend_->WaitForPlan(*job, key, plan_key, wait);
}

grpc::ServerUnaryReactor* PlannerService::Rendezvous(
    grpc::CallbackServerContext* context, const v1::RendezvousRequest* request,
    v1::RendezvousResponse* response) {
  UnaryCall* const call =
      NewCall(RpcMethod::kRendezvous, context, request->job());
  const std::optional<Caller> who = Admit(*context, Access::kUse, call);
  if (!who) return call;
  backend_->WhenCurrent([this, call, caller = *who, context, request,
                         response](const absl::Status& current) {
    if (!current.ok()) return call->Answer(current);
    JoinRendezvous(call, caller, *context, *request, response);
  });
  return call;
}

void PlannerService::JoinRendezvous(UnaryCall* call, const Caller& who,
                                    const grpc::CallbackServerContext& context,
                                    const v1::RendezvousRequest& request,
                                    v1::RendezvousResponse* response) {
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      FindRendezvousJob(who, request, &backend_->jobs());
  if (!job.ok()) return call->Answer(job.status());
  const auto wait = std::make_shared<RendezvousCall>(
      *job,
      RendezvousCall::Terms{.key = request.key(),
                            .size = request.size(),
                            .rank = request.rank(),
                            .offer = request.offer()},
      WaitDeadline(context, *backend_),
      [call, response](const RendezvousCall::Answer& offer) {
        if (offer.ok()) response->set_offer(**offer);
        call->Answer(offer.status());
      });
  call->OnGone(
      [backend = backend_, wait] { backend->rendezvous().Cancel(wait); });
  backend_->rendezvous().Join(wait);
}

grpc::ServerUnaryReactor* PlannerService::GetStatus(
    grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
    v1::ServerStatus* response) {
  UnaryCall* const call = NewCall(RpcMethod::kGetStatus, context);
  const std::optional<Caller> who = Admit(*context, Access::kLook, call);
  if (!who) return call;
  backend_->GetStatus(
      *request,
      [caller = *who](const JobRecord& job) {
        return MayAccess(caller, Access::kLook, job.owner);
      },
      [call, response](const absl::StatusOr<v1::ServerStatus>& status) {
        if (status.ok()) *response = *status;
        call->Answer(status.status());
      });
  return call;
}

}  // namespace skrull
