#include "skrull/tests/bench/load/driver.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "skrull/server/tsan.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::load {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

constexpr duration<double> kGrace{10};

std::chrono::system_clock::time_point Deadline(double seconds) {
  return std::chrono::system_clock::now() +
         duration_cast<std::chrono::system_clock::duration>(
             duration<double>(seconds));
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::string Path(Method method) {
  return std::string("/skrull.v1.PlannerService/") + MethodName(method);
}

// What an answer must be at least; empty if it is.
std::string Problem(const grpc::Status& status, Method method,
                    const grpc::ByteBuffer& response) {
  if (!status.ok()) return ReasonOf(status);
  // A plan is never empty, and nor is a rank's share of one.
  const bool plan = method != Method::kReportStep;
  return plan && response.Length() == 0 ? "empty answer" : "";
}

}  // namespace

Driver::Driver(const LoadOptions& options, Workload* workload,
               Recorder* recorder)
    : options_(options), workload_(workload), recorder_(recorder) {
  for (int64_t i = 0; i < options.connections; ++i) {
    Connection& connection = connections_.emplace_back();
    connection.channel = Connect(options.address);
    connection.stub = std::make_unique<Stub>(connection.channel);
    if (options.weights[static_cast<size_t>(Method::kStream)] > 0) {
      connection.stream = std::make_unique<StreamClient>(connection.stub.get());
    }
  }
  const auto stub = v1::PlannerService::NewStub(connections_[0].channel);
  for (const v1::CreateJobRequest& request : workload->Jobs()) {
    grpc::ClientContext context;
    context.set_deadline(Deadline(60));
    context.set_wait_for_ready(true);
    v1::Job job;
    const grpc::Status status = stub->CreateJob(&context, request, &job);
    if (!status.ok()) {
      throw std::runtime_error("CreateJob " + request.name() + ": " +
                               status.error_message());
    }
  }
}

void Driver::RunOpen(Time begin, Time end) {
  for (int64_t i = 0;; ++i) {
    const Time due =
        begin + duration_cast<steady_clock::duration>(
                    duration<double>(static_cast<double>(i) / options_.rate));
    if (due >= end) return;
    std::this_thread::sleep_until(due);
    if (Full()) {
      recorder_->HoldBack(due);
    } else {
      Start(due);
    }
  }
}

void Driver::RunClosed(Time end) {
  closed_until_ = end;
  for (int64_t i = 0; i < options_.in_flight; ++i) Start(steady_clock::now());
  std::this_thread::sleep_until(end);
}

int64_t Driver::WaitForCalls() {
  std::unique_lock<std::mutex> lock(mutex_);
  none_left_.wait_for(lock, duration<double>(options_.timeout_seconds) + kGrace,
                      [this] { return under_way_ == 0; });
  return under_way_;
}

bool Driver::Full() {
  if (options_.max_in_flight == 0) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return under_way_ >= options_.max_in_flight;
}

void Driver::Start(Time due) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++under_way_;
  }
  Connection& connection =
      connections_[next_connection_++ % connections_.size()];
  auto* const call = new Call;  // deleted by its callback
  call->item = workload_->Next();
  call->due = due;
  call->sent = steady_clock::now();
  const auto ended = [this, call](const std::string& problem) {
    const WorkItem& item = call->item;
    recorder_->Add(item.method, call->due, call->sent, problem);
    if (problem.empty() && item.method != Method::kGetRankPlan &&
        item.method != Method::kReportStep) {
      workload_->Committed(item.job, item.step);
    }
    delete call;
    Ended();
  };
  if (call->item.method == Method::kStream) {
    connection.stream->Send(call->item.request, ended);
    return;
  }
  call->context.set_deadline(Deadline(options_.timeout_seconds));
  TsanRelease(call);
  connection.stub->UnaryCall(
      &call->context, Path(call->item.method), grpc::StubOptions(),
      &call->item.request, &call->response,
      [call, ended](const grpc::Status& status) {
        TsanAcquire(call);
        ended(Problem(status, call->item.method, call->response));
      });
}

void Driver::Ended() {
  const Time now = steady_clock::now();
  if (now < closed_until_) Start(now);
  std::lock_guard<std::mutex> lock(mutex_);
  if (--under_way_ == 0) none_left_.notify_all();
}

}  // namespace skrull::load
