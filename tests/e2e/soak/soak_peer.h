// One client of a soak, and its calls.
#ifndef SKRULL_TESTS_E2E_SOAK_SOAK_PEER_H_
#define SKRULL_TESTS_E2E_SOAK_SOAK_PEER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "grpcpp/grpcpp.h"
#include "skrull/server/tsan.h"
#include "skrull/tests/e2e/soak/soak_clients.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {

inline constexpr std::chrono::seconds kCallTime{60};
inline constexpr int kRanks = 8;
// Lengths of a batch that the daemon does not read on the thread that gets it:
// more than 16 KiB.
inline constexpr int64_t kLargeBatch = 12000;

// One client on a connection of its own.
class Peer {
 public:
  Peer(const SoakClient& client, const std::string& address, int kind)
      : name_("soak-" + std::to_string(kind) + "-" + std::to_string(client.id)),
        random_(static_cast<uint64_t>(1000 * kind + client.id)),
        generation_(client.last_generation) {
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
    std::this_thread::sleep_for(std::chrono::milliseconds(Below(most_millis)));
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
               {grpc::StatusCode::OK});
  }

  void DeleteJob(SoakLog* log) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTime);
    v1::DeleteJobRequest request;
    request.set_name(name_);
    v1::DeleteJobResponse response;
    log->Ended("DeleteJob", stub_->DeleteJob(&context, request, &response),
               {grpc::StatusCode::OK});
    generation_ = 0;
  }

 private:
  const std::string name_;
  std::mt19937_64 random_;
  int64_t generation_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

// A call under way.
template <typename Response>
struct Pending {
  grpc::ClientContext context;
  Response response;
  std::promise<grpc::Status> promise;

  std::function<void(grpc::Status)> Done() {
    TsanRelease(this);
    return [this](const grpc::Status& status) {
      TsanAcquire(this);
      promise.set_value(status);
    };
  }
};

inline void SetTime(grpc::ClientContext* context,
                    std::chrono::system_clock::duration time) {
  context->set_deadline(std::chrono::system_clock::now() + time);
}

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_E2E_SOAK_SOAK_PEER_H_
