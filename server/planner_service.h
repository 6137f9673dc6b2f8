// skrull.v1.PlannerService on gRPC's callback API: admit, decode, call the
// backend, encode. Nothing here plans or touches the store, and nothing is done
// for a caller that is not admitted.
#ifndef SKRULL_SERVER_PLANNER_SERVICE_H_
#define SKRULL_SERVER_PLANNER_SERVICE_H_

#include <chrono>
#include <optional>
#include <string>

#include "grpcpp/grpcpp.h"
#include "skrull/server/auth/authorize.h"
#include "skrull/server/auth/caller.h"
#include "skrull/server/auth/security.h"
#include "skrull/server/backend.h"
#include "skrull/server/reactors.h"
#include "skrull/server/stream_plans.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull {

// PlanBatch takes and gives raw bytes: a committed plan goes out as it is
// stored, and a request that is no message is refused in our own words.
using PlannerServiceBase = v1::PlannerService::WithCallbackMethod_CreateJob<
    v1::PlannerService::WithCallbackMethod_GetJob<
        v1::PlannerService::WithCallbackMethod_ListJobs<
            v1::PlannerService::WithCallbackMethod_DeleteJob<
                v1::PlannerService::WithRawCallbackMethod_PlanBatch<
                    v1::PlannerService::WithCallbackMethod_StreamPlans<
                        v1::PlannerService::WithCallbackMethod_GetRankPlan<
                            v1::PlannerService::WithCallbackMethod_ReportStep<
                                v1::PlannerService::WithCallbackMethod_Rendezvous<
                                    v1::PlannerService::
                                        WithCallbackMethod_GetStatus<
                                            v1::PlannerService::
                                                WithCallbackMethod_ListCalibrations<
                                                    v1::PlannerService::
                                                        Service>>>>>>>>>>>;

// Thread-safe. Must outlive every call: WaitForCalls tells.
class PlannerService final : public PlannerServiceBase {
 public:
  // All must outlive the service.
  PlannerService(Backend* backend, const Security* security,
                 const Logger* logger);

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* PlanBatch(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<v1::StreamPlansRequest, v1::StreamPlansResponse>*
  StreamPlans(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetRankPlan(grpc::CallbackServerContext* context,
                                        const v1::GetRankPlanRequest* request,
                                        v1::RankPlan* response) override;
  grpc::ServerUnaryReactor* ReportStep(
      grpc::CallbackServerContext* context,
      const v1::ReportStepRequest* request,
      v1::ReportStepResponse* response) override;
  grpc::ServerUnaryReactor* ListCalibrations(
      grpc::CallbackServerContext* context,
      const v1::ListCalibrationsRequest* request,
      v1::ListCalibrationsResponse* response) override;
  grpc::ServerUnaryReactor* Rendezvous(
      grpc::CallbackServerContext* context,
      const v1::RendezvousRequest* request,
      v1::RendezvousResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::ServerStatus* response) override;

  // Ends open streams once they have answered what they have read.
  void StartDrain() { streams_.StartDrain(); }

  // Returns once no call is being answered, or at `deadline`; true if none is.
  bool WaitForCalls(std::chrono::steady_clock::time_point deadline) {
    return active_.WaitForNone(deadline);
  }

 private:
  // A call about `job`.
  UnaryCall* NewCall(RpcMethod method, grpc::CallbackServerContext* context,
                     const std::string& job = "") {
    auto* const call = new UnaryCall(method, services_, context);
    call->SetJob(job);
    return call;
  }

  // The rest of the calls that wait, past the backend's door.
  void WaitForRankPlan(UnaryCall* call, const Caller& who,
                       const grpc::CallbackServerContext& context,
                       const v1::GetRankPlanRequest& request,
                       v1::RankPlan* response);
  void JoinRendezvous(UnaryCall* call, const Caller& who,
                      const grpc::CallbackServerContext& context,
                      const v1::RendezvousRequest& request,
                      v1::RendezvousResponse* response);

  // The caller, if it may make such calls; else the call is answered.
  std::optional<Caller> Admit(const grpc::CallbackServerContext& context,
                              Access access, UnaryCall* call) const;

  Backend* const backend_;
  const Security* const security_;
  ActiveCalls active_;
  CallLog log_;
  RequestIds request_ids_;
  const CallServices services_;
  PlanStreams streams_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_SERVICE_H_
