#include "skrull/tests/e2e/soak/soak_clients.h"

#include <algorithm>

#include "skrull/tests/e2e/soak/soak_peer.h"

namespace skrull::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;

constexpr size_t kMaxFailures = 20;

}  // namespace

void SoakLog::Ended(const std::string& what, const grpc::Status& status,
                    std::initializer_list<StatusCode> expected) {
  const StatusCode code = status.error_code();
  const bool refusal =
      code == StatusCode::RESOURCE_EXHAUSTED || code == StatusCode::UNAVAILABLE;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++calls_[code];
  }
  if (std::find(expected.begin(), expected.end(), code) == expected.end() ||
      (refusal && status.error_details().empty())) {
    Fail(what + ": code " + std::to_string(code) + ", " +
         status.error_message());
  }
}

void SoakLog::Fail(const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failures_.size() < kMaxFailures) failures_.push_back(what);
}

std::map<StatusCode, int64_t> SoakLog::calls() {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

std::vector<std::string> SoakLog::failures() {
  std::lock_guard<std::mutex> lock(mutex_);
  return failures_;
}

void RunTrainer(const SoakClient& client, const std::stop_token& stop) {
  Peer peer(client, client.address, 1);
  SoakLog& log = *client.log;
  while (!stop.stop_requested()) {
    peer.Connect(client.address);
    peer.Renew(&log);
    const int64_t steps = 5 + peer.Below(40);
    for (int64_t step = 0; step < steps && !stop.stop_requested(); ++step) {
      grpc::ClientContext context;
      SetTime(&context, kCallTime);
      v1::PlanBatchResponse plan;
      const int64_t size =
          peer.Below(20) == 0 ? kLargeBatch : 1 + peer.Below(256);
      const grpc::Status planned =
          peer.stub().PlanBatch(&context, peer.Batch(step, size), &plan);
      log.Ended("PlanBatch", planned,
                {StatusCode::OK, StatusCode::RESOURCE_EXHAUSTED});
      if (!planned.ok()) continue;
      const auto rank = static_cast<int32_t>(peer.Below(kRanks));
      grpc::ClientContext rank_context;
      SetTime(&rank_context, kCallTime);
      v1::GetRankPlanRequest fetch;
      fetch.set_job(peer.name());
      fetch.set_step(step);
      fetch.set_rank(rank);
      v1::RankPlan share;
      log.Ended("GetRankPlan",
                peer.stub().GetRankPlan(&rank_context, fetch, &share),
                {StatusCode::OK});
      if (share.digest() != plan.plan().digest()) log.Fail("another plan");
      grpc::ClientContext report_context;
      SetTime(&report_context, kCallTime);
      v1::ReportStepRequest report;
      report.set_job(peer.name());
      report.mutable_report()->set_step(step);
      report.mutable_report()->set_rank(rank);
      report.mutable_report()->set_outcome(v1::STEP_OUTCOME_OK);
      v1::ReportStepResponse reported;
      log.Ended("ReportStep",
                peer.stub().ReportStep(&report_context, report, &reported),
                {StatusCode::OK});
      peer.Pause(20);
    }
    if (peer.Below(2) == 0) peer.DeleteJob(&log);
  }
}

namespace {

// Starts a call that does not end by itself soon, and gives it up.
class GivenUp {
 public:
  GivenUp(Peer* peer, SoakLog* log) : peer_(peer), log_(log) {}

  void Plan(int64_t step) {
    Pending<v1::PlanBatchResponse> call;
    SetTimeOf(&call.context);
    const v1::PlanBatchRequest request =
        peer_->Batch(step, peer_->Below(3) == 0 ? kLargeBatch : 500);
    peer_->stub().async()->PlanBatch(&call.context, &request, &call.response,
                                     call.Done());
    Finish("PlanBatch given up", &call);
  }

  void WaitForPlan() {
    Pending<v1::RankPlan> call;
    SetTimeOf(&call.context);
    v1::GetRankPlanRequest request;
    request.set_job(peer_->name());
    request.set_step(int64_t{1} << 40);  // nobody plans it
    peer_->stub().async()->GetRankPlan(&call.context, &request, &call.response,
                                       call.Done());
    Finish("GetRankPlan given up", &call);
  }

  void Meet() {
    Pending<v1::RendezvousResponse> call;
    SetTimeOf(&call.context);
    v1::RendezvousRequest request;
    request.set_job(peer_->name());
    request.set_key("key-" + std::to_string(peer_->Below(4)));
    request.set_size(kRanks);
    request.set_rank(1);
    peer_->stub().async()->Rendezvous(&call.context, &request, &call.response,
                                      call.Done());
    Finish("Rendezvous given up", &call);
  }

  void Stream(int64_t step) {
    grpc::ClientContext context;
    SetTimeOf(&context);
    const auto stream = peer_->stub().StreamPlans(&context);
    for (int64_t i = 0; i < 1 + peer_->Below(12); ++i) {
      v1::StreamPlansRequest request;
      *request.mutable_batch() = peer_->Batch(step + i, 200);
      if (!stream->Write(request)) break;
    }
    v1::StreamPlansResponse response;
    if (peer_->Below(2) == 0) stream->Read(&response);
    context.TryCancel();
    while (stream->Read(&response)) {
    }
    log_->Ended("StreamPlans given up", stream->Finish(), kCodes);
  }

 private:
  static constexpr std::initializer_list<StatusCode> kCodes = {
      StatusCode::OK, StatusCode::CANCELLED, StatusCode::DEADLINE_EXCEEDED,
      StatusCode::RESOURCE_EXHAUSTED};

  // Half of the calls have a deadline that will pass.
  void SetTimeOf(grpc::ClientContext* context) {
    SetTime(context, peer_->Below(2) == 0
                         ? milliseconds(1 + peer_->Below(100))
                         : std::chrono::duration_cast<milliseconds>(kCallTime));
  }

  template <typename Response>
  void Finish(const std::string& what, Pending<Response>* call) {
    std::future<grpc::Status> status = call->promise.get_future();
    peer_->Pause(60);
    call->context.TryCancel();
    log_->Ended(what, status.get(), kCodes);
  }

  Peer* const peer_;
  SoakLog* const log_;
};

}  // namespace

void RunCanceller(const SoakClient& client, const std::stop_token& stop) {
  Peer peer(client, client.address, 2);
  GivenUp given_up(&peer, client.log);
  int64_t step = 0;
  for (int64_t round = 0; !stop.stop_requested(); ++round) {
    if (round % 50 == 0) {
      peer.Connect(client.address);
      peer.Renew(client.log);
    }
    switch (peer.Below(4)) {
      case 0:
        given_up.Plan(step++);
        break;
      case 1:
        given_up.WaitForPlan();
        break;
      case 2:
        given_up.Meet();
        break;
      default:
        given_up.Stream(step);
        step += 12;
    }
  }
}

}  // namespace skrull::testing
