#include "skrull/tests/fault/fault_client.h"

#include <chrono>
#include <thread>
#include <vector>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

constexpr int kDpSize = 2;
constexpr int kCpSize = 2;
// Long, so that a wait for a plan that stands can only end with it.
constexpr std::chrono::minutes kTimeout{2};

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  // Connections of its own; back soon after the daemon is.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 10);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// The spec of a life: another one than the life's before.
v1::JobSpec SpecOf(const Life& life) {
  return SmallSpec(kDpSize, kCpSize, 200 + life.generation % 7);
}

}  // namespace

FaultClient::FaultClient(int index, uint64_t seed, const std::string& address,
                         History* history, std::atomic<int64_t>* answers)
    : index_(index),
      engine_(seed),
      history_(history),
      answers_(answers),
      stub_(v1::PlannerService::NewStub(NewChannel(address))),
      life_{.job = "job" + std::to_string(index)} {}

void FaultClient::SetUp(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + kTimeout);
  context->set_wait_for_ready(wait_for_ready_);
}

FaultClient::Answer FaultClient::Read(const grpc::Status& status,
                                      const std::string& what) {
  const std::string reason = DetailOf(status).reason();
  // A status without our detail is the connection's.
  if (!status.ok() && reason.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Answer::kLost;
  }
  ++*answers_;
  if (status.ok()) return Answer::kOk;
  if (reason == "JOB_NOT_FOUND" || reason == "GENERATION_MISMATCH") {
    return Answer::kNoJob;
  }
  if (reason == "PLAN_CONFLICT") return Answer::kConflict;
  if (reason == "QUEUE_FULL") return Answer::kRefused;
  history_->Wrong(what + ": " + reason + ": " + status.error_message());
  return Answer::kRefused;
}

void FaultClient::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const uint64_t choice = engine_() % 100;
    const bool change = engine_() % 64 == 0;
    const std::optional<Request> step = history_->AnyStep(&engine_);
    const std::optional<Request> planned = history_->AnyPlanned(&engine_);
    if (change || !step) {
      ChangeJob();
    } else if (choice < 40 || !planned) {
      Plan(*step);
    } else if (choice < 50) {
      Plan(*planned);
    } else if (choice < 58) {
      PlanOther(*planned);
    } else if (choice < 72) {
      FetchShare(*planned);
    } else if (choice < 94) {
      ReportStep(*planned);
    } else if (choice < 97) {
      GetJob(step->life);
    } else {
      ListEpochs(step->life);
    }
  }
}

void FaultClient::AskAgain(const std::vector<Request>& requests) {
  wait_for_ready_ = true;
  for (const Request& request : requests) Plan(request);
  wait_for_ready_ = false;
}

void FaultClient::ChangeJob() {
  if (stage_ == Stage::kStands && engine_() % 2 == 0) {
    stage_ = Stage::kDeleting;
    history_->EndSent(life_);
  } else if (stage_ == Stage::kStands || stage_ == Stage::kNone) {
    if (stage_ == Stage::kStands) {
      replaced_ = life_;
      history_->EndSent(life_);
    }
    ++life_.generation;
    history_->CreateSent(life_, SpecOf(life_));
    stage_ = Stage::kCreating;
  }
  // Whatever was begun is asked for until it is answered.
  if (stage_ == Stage::kCreating) return Create(life_);
  grpc::ClientContext context;
  SetUp(&context);
  v1::DeleteJobRequest request;
  request.set_name(life_.job);
  request.set_generation(life_.generation);
  v1::DeleteJobResponse response;
  const Answer answer =
      Read(stub_->DeleteJob(&context, request, &response), "DeleteJob");
  // kNoJob: an earlier call did it, and its answer was lost.
  if (answer != Answer::kOk && answer != Answer::kNoJob) return;
  history_->Ended(life_);
  stage_ = Stage::kNone;
}

void FaultClient::Create(const Life& life) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::CreateJobRequest request;
  request.set_name(life.job);
  request.set_generation(life.generation);
  *request.mutable_spec() = SpecOf(life);
  v1::Job job;
  const Answer answer =
      Read(stub_->CreateJob(&context, request, &job), "CreateJob");
  if (answer == Answer::kNoJob) {
    history_->Wrong("CreateJob: refused for the generation of another life");
  }
  if (answer != Answer::kOk) return;
  history_->Created(life, job);
  if (replaced_) history_->Ended(*replaced_);
  replaced_.reset();
  stage_ = Stage::kStands;
}

void FaultClient::Plan(const Request& request) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::PlanBatchRequest message =
      Batch(request.life.job, request.step, LengthsOf(request));
  message.set_generation(request.life.generation);
  message.set_attempt(request.attempt);
  const History::Ticket ticket = history_->Begin(request.life);
  history_->BatchSent(request);
  v1::PlanBatchResponse response;
  const grpc::Status status = stub_->PlanBatch(&context, message, &response);
  switch (Read(status, "PlanBatch")) {
    case Answer::kOk:
      return history_->Planned(ticket, request, response);
    case Answer::kNoJob:
      return history_->NoJob(ticket, status.error_message());
    case Answer::kConflict:
      return history_->Conflicted(ticket, request);
    case Answer::kLost:
    case Answer::kRefused:
      return;
  }
}

void FaultClient::PlanOther(Request request) {
  request.variant = (request.variant + 1) % kVariants;
  Plan(request);
}

void FaultClient::FetchShare(const Request& request) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::GetRankPlanRequest message;
  message.set_job(request.life.job);
  message.set_generation(request.life.generation);
  message.set_step(request.step);
  message.set_attempt(request.attempt);
  message.set_rank(static_cast<int>(engine_() % (kDpSize * kCpSize)));
  const History::Ticket ticket = history_->Begin(request.life);
  v1::RankPlan share;
  const grpc::Status status = stub_->GetRankPlan(&context, message, &share);
  const Answer answer = Read(status, "GetRankPlan of a plan that stands");
  if (answer == Answer::kOk) history_->GotShare(ticket, request, share);
  if (answer == Answer::kNoJob) {
    history_->NoJob(ticket, status.error_message());
  }
}

void FaultClient::ReportStep(const Request& request) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::ReportStepRequest message;
  message.set_job(request.life.job);
  message.set_generation(request.life.generation);
  v1::StepReport& report = *message.mutable_report();
  report.set_step(request.step);
  report.set_attempt(request.attempt);
  report.set_rank(index_);
  const bool out_of_memory = engine_() % 32 == 0;
  report.set_outcome(out_of_memory ? v1::STEP_OUTCOME_OUT_OF_MEMORY
                                   : v1::STEP_OUTCOME_OK);
  report.mutable_step_time()->set_nanos(
      static_cast<int32_t>(1'000'000 + engine_() % 1'000'000));
  report.set_peak_bytes(++last_peak_);
  const History::Ticket ticket = history_->Begin(request.life);
  v1::ReportStepResponse response;
  const grpc::Status status = stub_->ReportStep(&context, message, &response);
  const Answer answer = Read(status, "ReportStep");
  if (answer == Answer::kOk) {
    history_->Reported(ticket, request, report, response);
    // All ranks run the further attempt, for the same lengths.
    if (response.attempt() > request.attempt) {
      Request again = request;
      again.attempt = response.attempt();
      Plan(again);
    }
  }
  if (answer == Answer::kNoJob) {
    history_->NoJob(ticket, status.error_message());
  }
}

void FaultClient::GetJob(const Life& life) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::GetJobRequest request;
  request.set_name(life.job);
  const History::Ticket ticket = history_->Begin(life);
  v1::Job job;
  const grpc::Status status = stub_->GetJob(&context, request, &job);
  const Answer answer = Read(status, "GetJob");
  if (answer == Answer::kOk) history_->GotJob(ticket, job);
  if (answer == Answer::kNoJob) {
    history_->NoJob(ticket, status.error_message());
  }
}

void FaultClient::ListEpochs(const Life& life) {
  grpc::ClientContext context;
  SetUp(&context);
  v1::ListCalibrationsRequest request;
  request.set_job(life.job);
  request.set_generation(life.generation);
  const History::Ticket ticket = history_->Begin(life);
  v1::ListCalibrationsResponse response;
  const grpc::Status status =
      stub_->ListCalibrations(&context, request, &response);
  const Answer answer = Read(status, "ListCalibrations");
  if (answer == Answer::kOk) history_->GotEpochs(ticket, response);
  if (answer == Answer::kNoJob) {
    history_->NoJob(ticket, status.error_message());
  }
}

}  // namespace skrull::testing
