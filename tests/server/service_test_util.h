// What tests of the service share: small jobs and batches, and calls to a
// daemon over raw stubs.
#ifndef SKRULL_TESTS_SERVER_SERVICE_TEST_UTIL_H_
#define SKRULL_TESTS_SERVER_SERVICE_TEST_UTIL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {

// A valid spec on dp x cp ranks of `bucket` tokens.
v1::JobSpec SmallSpec(int dp_size, int cp_size, int64_t bucket);

v1::PlanBatchRequest Batch(const std::string& job, int64_t step,
                           const std::vector<int64_t>& lengths);

// The detail in a status's trailer; empty if it has none.
v1::ErrorDetail DetailOf(const grpc::Status& status);

// True once `condition` holds; false if it does not within a minute.
bool Eventually(const std::function<bool()>& condition);

// A call that is under way.
template <typename Response>
struct Pending {
  grpc::ClientContext context;
  Response response;
  std::promise<grpc::Status> promise;
  std::future<grpc::Status> status = promise.get_future();
};

// A client of one daemon, on a connection of its own. Calls have a deadline of
// two minutes: tests fail rather than hang.
class Client {
 public:
  explicit Client(const std::string& address);

  v1::PlannerService::Stub& stub() { return *stub_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  grpc::Status CreateJob(const std::string& name, const v1::JobSpec& spec,
                         int64_t generation = 0, v1::Job* job = nullptr);
  grpc::Status DeleteJob(const std::string& name, int64_t generation = 0);
  grpc::Status Plan(const v1::PlanBatchRequest& request,
                    v1::PlanBatchResponse* response = nullptr);
  grpc::Status RankPlan(const std::string& job, int64_t step, int rank,
                        v1::RankPlan* response = nullptr,
                        int64_t generation = 0);

  std::unique_ptr<Pending<v1::PlanBatchResponse>> StartPlan(
      const v1::PlanBatchRequest& request,
      std::chrono::milliseconds timeout = std::chrono::minutes(2));
  std::unique_ptr<Pending<v1::RankPlan>> StartRankPlan(
      const std::string& job, int64_t step, int rank,
      std::chrono::milliseconds timeout = std::chrono::minutes(2));

  // Registers the job "slow" and starts planning a batch of it that keeps a
  // planning thread busy for about a second or more.
  std::unique_ptr<Pending<v1::PlanBatchResponse>> StartSlowPlan(int64_t step);

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_SERVICE_TEST_UTIL_H_
