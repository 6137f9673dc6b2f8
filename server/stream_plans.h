// StreamPlans: many batches on one stream, planned side by side, answered in
// order.
#ifndef SKRULL_SERVER_STREAM_PLANS_H_
#define SKRULL_SERVER_STREAM_PLANS_H_

#include <chrono>
#include <map>
#include <memory>

#include "grpcpp/grpcpp.h"
#include "skrull/server/auth/security.h"
#include "skrull/server/backend.h"
#include "skrull/server/mutex.h"
#include "skrull/server/plan_client.h"
#include "skrull/server/reactors.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

class StreamPlansReactor;

// The open streams. Thread-safe.
class PlanStreams {
 public:
  // All must outlive the object, and it every stream.
  PlanStreams(Backend* backend, const Security* security,
              const CallServices& services)
      : backend_(backend), security_(security), services_(services) {}

  // A stream, `call`, that deletes itself when gRPC is done with it. One whose
  // caller may not plan ends at once.
  grpc::ServerBidiReactor<v1::StreamPlansRequest, v1::StreamPlansResponse>*
  NewStream(const grpc::CallbackServerContext* context, CallInfo call,
            std::chrono::steady_clock::time_point deadline)
      SKRULL_EXCLUDES(mutex_);

  // Has every stream, and those to come, read no further and end with kDraining
  // once all it has read is answered.
  void StartDrain() SKRULL_EXCLUDES(mutex_);

 private:
  friend class StreamPlansReactor;

  void Remove(StreamPlansReactor* stream) SKRULL_EXCLUDES(mutex_);

  Backend* const backend_;
  const Security* const security_;
  const CallServices services_;
  Mutex mutex_;
  bool draining_ SKRULL_GUARDED_BY(mutex_) = false;
  std::map<StreamPlansReactor*, std::weak_ptr<StreamPlansReactor>> streams_
      SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_STREAM_PLANS_H_
