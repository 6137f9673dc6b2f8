// A planner's service in this process whose answers the test decides.
#ifndef SKRULL_TESTS_CLIENT_FAKE_PLANNER_H_
#define SKRULL_TESTS_CLIENT_FAKE_PLANNER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "skrull/client/planner_client.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {

using StreamOfPlans =
    grpc::ServerReaderWriter<v1::StreamPlansResponse, v1::StreamPlansRequest>;

// Answers through the functions below; a call whose function is not set is
// UNIMPLEMENTED. The functions run on gRPC's threads: those of unary calls
// under mutex(), which a test takes to look at what they wrote; stream_plans
// without. Set them, and make what they use, before asking for the address.
class FakePlanner : public v1::PlannerService::Service {
 public:
  // Listens on a free loopback port.
  FakePlanner();
  // Cancels what runs.
  ~FakePlanner() override;

  const std::string& address() const {
    // Has the functions see what the test wrote before.
    const std::lock_guard<std::mutex> lock(mutex_);
    return address_;
  }
  std::mutex& mutex() { return mutex_; }

  std::function<grpc::Status(v1::Job*)> get_job;
  std::function<grpc::Status(const v1::ListJobsRequest&, v1::ListJobsResponse*)>
      list_jobs;
  std::function<grpc::Status()> delete_job;
  std::function<grpc::Status(grpc::ServerContext*, const v1::PlanBatchRequest&,
                             v1::PlanBatchResponse*)>
      plan_batch;
  std::function<grpc::Status(grpc::ServerContext*, StreamOfPlans*)>
      stream_plans;
  std::function<grpc::Status(const v1::ReportStepRequest&)> report_step;
  std::function<grpc::Status(const v1::GetRankPlanRequest&, v1::RankPlan*)>
      get_rank_plan;
  std::function<grpc::Status(const v1::ListCalibrationsRequest&,
                             v1::ListCalibrationsResponse*)>
      list_calibrations;
  std::function<grpc::Status(const v1::GetStatusRequest&, v1::ServerStatus*)>
      get_status;

 private:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*,
                      v1::Job* job) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest*,
                         v1::DeleteJobResponse*) override;
  grpc::Status PlanBatch(grpc::ServerContext*, const v1::PlanBatchRequest*,
                         v1::PlanBatchResponse*) override;
  grpc::Status StreamPlans(grpc::ServerContext*, StreamOfPlans*) override;
  grpc::Status ReportStep(grpc::ServerContext*, const v1::ReportStepRequest*,
                          v1::ReportStepResponse*) override;
  grpc::Status GetRankPlan(grpc::ServerContext*, const v1::GetRankPlanRequest*,
                           v1::RankPlan*) override;
  grpc::Status ListCalibrations(grpc::ServerContext*,
                                const v1::ListCalibrationsRequest*,
                                v1::ListCalibrationsResponse*) override;
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::ServerStatus*) override;

  mutable std::mutex mutex_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// A status with its detail, as a daemon sends it. `retry_after_seconds` < 0 =
// unset.
grpc::Status RefusalStatus(grpc::StatusCode code, const std::string& message,
                           const std::string& reason,
                           double retry_after_seconds = -1);

// An answer whose plan holds `request`'s key and lengths as local sequences.
v1::PlanBatchResponse AnswerTo(const v1::PlanBatchRequest& request);

// Options that make retries and reports of a dead address quick.
ClientOptions QuickOptions(const std::string& address);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_CLIENT_FAKE_PLANNER_H_
