#include "skrull/tests/e2e/soak/soak_clients.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "skrull/tests/e2e/soak/bad_peers.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kCallTime{60};
// What the daemon gives a connection to say something.
constexpr seconds kHandshakeTime{20};
constexpr int kRanks = 8;
// Lengths of a batch that the daemon does not read on the thread that gets it:
// more than 16 KiB.
constexpr int64_t kLargeBatch = 12000;
constexpr size_t kMaxFailures = 20;

// One client on a connection of its own.
class Peer {
 public:
  Peer(const SoakClient& client, const std::string& address, int kind)
      : name_("soak-" + std::to_string(kind) + "-" + std::to_string(client.id)),
        random_(static_cast<uint64_t>(1000 * kind + client.id)) {
    Connect(address);
  }

  void Connect(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = v1::PlannerService::NewStub(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments));
  }

  v1::PlannerService::Stub& stub() { return *stub_; }
  const std::string& name() const { return name_; }

  int64_t Below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_);
  }
  void Pause(int64_t most_millis) {
    std::this_thread::sleep_for(milliseconds(Below(most_millis)));
  }

  v1::PlanBatchRequest Batch(int64_t step, int64_t size) {
    std::lognormal_distribution<double> length(6.0, 1.2);
    v1::PlanBatchRequest request;
    request.set_job(name_);
    request.set_step(step);
    for (int64_t i = 0; i < size; ++i) {
      request.add_lengths(
          std::clamp<int64_t>(static_cast<int64_t>(length(random_)), 1, 30000));
    }
    return request;
  }

  // Registers the job, or its next generation, which forgets the plans of the
  // one before.
  void Renew(SoakLog* log) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTime);
    v1::CreateJobRequest request;
    request.set_name(name_);
    request.set_generation(++generation_);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->set_hidden_size(896);
    spec.mutable_model()->set_layer_count(24);
    spec.mutable_model()->set_attention_head_count(14);
    spec.mutable_parallelism()->set_dp_size(2);
    spec.mutable_parallelism()->set_cp_size(kRanks / 2);
    spec.mutable_memory()->set_bucket_size_tokens(26624);
    spec.set_policy(v1::POLICY_SKRULL);  // more calls for the same time
    v1::Job job;
    log->Ended("CreateJob", stub_->CreateJob(&context, request, &job),
               {StatusCode::OK});
  }

  void DeleteJob(SoakLog* log) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTime);
    v1::DeleteJobRequest request;
    request.set_name(name_);
    v1::DeleteJobResponse response;
    log->Ended("DeleteJob", stub_->DeleteJob(&context, request, &response),
               {StatusCode::OK});
    generation_ = 0;
  }

 private:
  const std::string name_;
  std::mt19937_64 random_;
  int64_t generation_ = 0;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

// A call under way.
template <typename Response>
struct Pending {
  grpc::ClientContext context;
  Response response;
  std::promise<grpc::Status> promise;

  std::function<void(grpc::Status)> Done() {
    return [this](const grpc::Status& status) { promise.set_value(status); };
  }
};

void SetTime(grpc::ClientContext* context,
             std::chrono::system_clock::duration time) {
  context->set_deadline(std::chrono::system_clock::now() + time);
}

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

void RunSlowReader(const SoakClient& client, const std::stop_token& stop) {
  Peer peer(client, client.address, 3);
  int64_t step = 0;
  while (!stop.stop_requested()) {
    peer.Renew(client.log);
    grpc::ClientContext context;
    SetTime(&context, kCallTime);
    const auto stream = peer.stub().StreamPlans(&context);
    // Held back by flow control, the writer ends when the stream is dropped.
    std::jthread writer([&stream, &peer, step] {
      // The reader draws nothing meanwhile.
      v1::StreamPlansRequest request;
      for (int64_t i = 0; i < 100; ++i) {
        *request.mutable_batch() = peer.Batch(step + i, 2000);
        if (!stream->Write(request)) return;
      }
    });
    v1::StreamPlansResponse response;
    std::this_thread::sleep_for(milliseconds(700));
    for (int i = 0; i < 8 && !stop.stop_requested(); ++i) {
      if (step % 300 != 0) stream->Read(&response);  // every third reads none
      std::this_thread::sleep_for(milliseconds(100));
    }
    context.TryCancel();
    writer.join();
    while (stream->Read(&response)) {
    }
    client.log->Ended("StreamPlans read slowly", stream->Finish(),
                      {StatusCode::CANCELLED});
    step += 100;
  }
}

void RunHalfOpen(const SoakClient& client, double patience_seconds,
                 const std::stop_token& stop) {
  using Steady = std::chrono::steady_clock;
  const auto patience = std::chrono::duration_cast<Steady::duration>(
      std::chrono::duration<double>(patience_seconds));
  std::vector<std::pair<Steady::time_point, std::unique_ptr<Relay>>> silent;
  Peer peer(client, client.address, 4);
  auto mute = std::make_unique<SilentSocket>(client.address);
  auto mute_since = Steady::now();
  int64_t step = 0;
  while (!stop.stop_requested()) {
    if (Steady::now() - mute_since > kHandshakeTime + patience) {
      if (!mute->Closed()) {
        client.log->Fail("a connection that never spoke is still open");
      }
      mute = std::make_unique<SilentSocket>(client.address);
      mute_since = Steady::now();
    }
    auto relay = std::make_unique<Relay>(client.address);
    {
      peer.Connect(relay->address());
      peer.Renew(client.log);
      grpc::ClientContext context;
      SetTime(&context, kCallTime);
      const auto stream = peer.stub().StreamPlans(&context);
      v1::StreamPlansRequest request;
      for (int i = 0; i < 4; ++i) {
        *request.mutable_batch() = peer.Batch(step++, 2000);
        stream->Write(request);
      }
      Pending<v1::RankPlan> wait;
      SetTime(&wait.context, kCallTime);
      v1::GetRankPlanRequest fetch;
      fetch.set_job(peer.name());
      fetch.set_step(int64_t{1} << 40);
      peer.stub().async()->GetRankPlan(&wait.context, &fetch, &wait.response,
                                       wait.Done());
      peer.Pause(50);
      relay->Freeze();
      context.TryCancel();
      wait.context.TryCancel();
      wait.promise.get_future().wait();
      v1::StreamPlansResponse response;
      while (stream->Read(&response)) {
      }
      stream->Finish();
      peer.Connect(client.address);  // drops the silent connection
    }
    silent.emplace_back(Steady::now(), std::move(relay));
    while (!silent.empty() && Steady::now() - silent[0].first > patience) {
      if (!silent[0].second->Abandoned()) {
        client.log->Fail("a connection that fell silent is still open");
      }
      silent.erase(silent.begin());
    }
    std::this_thread::sleep_for(milliseconds(300));
  }
}

void RunKilled(const SoakClient& client, const std::string& program,
               const std::stop_token& stop) {
  std::mt19937_64 random(static_cast<uint64_t>(client.id));
  int victim = 0;
  while (!stop.stop_requested()) {
    Process process({program, "--victim", client.address,
                     std::to_string(1000 + client.id * 100 + victim++ % 8)});
    std::this_thread::sleep_for(milliseconds(
        std::uniform_int_distribution<int64_t>(200, 1500)(random)));
    process.Kill();
  }
}

void RunVictim(const std::string& address, int id) {
  SoakLog log;
  const SoakClient client{.address = address, .id = id, .log = &log};
  std::jthread trainer(
      [&](const std::stop_token& s) { RunTrainer(client, s); });
  std::jthread canceller(
      [&](const std::stop_token& s) { RunCanceller(client, s); });
  std::jthread reader(
      [&](const std::stop_token& s) { RunSlowReader(client, s); });
  while (true) std::this_thread::sleep_for(seconds(60));
}

}  // namespace skrull::testing
