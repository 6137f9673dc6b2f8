#include "skrull/server/stream_plans.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "google/protobuf/util/time_util.h"
#include "skrull/planner/error.h"
#include "skrull/server/auth/grpc_security.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

// Batches of one stream that are read and not yet answered. A client that sends
// faster is held back by flow control.
constexpr size_t kWindow = 8;

void FillResponse(const PlanOutcome& result,
                  v1::StreamPlansResponse* response) {
  if (!result.ok()) {
    *response->mutable_status() = StatusToProto(result.status());
    return;
  }
  v1::PlanBatchResponse* const out = response->mutable_response();
  out->mutable_plan()->ParseFromString(result->plan->record().plan);
  if (result->planning_seconds) {
    *out->mutable_planning_time() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(
            static_cast<int64_t>(*result->planning_seconds * 1e9));
  }
  out->set_committed(result->committed);
}

}  // namespace

// One stream. Owns itself until gRPC is done with it.
//
// gRPC may run a callback inside the call that starts an operation, so no lock
// is held over one. Pump starts operations, on one thread at a time; callbacks
// record what happened and pump.
class StreamPlansReactor
    : public grpc::ServerBidiReactor<v1::StreamPlansRequest,
                                     v1::StreamPlansResponse>,
      public std::enable_shared_from_this<StreamPlansReactor> {
 public:
  StreamPlansReactor(PlanStreams* owner,
                     const grpc::CallbackServerContext* context, CallInfo call,
                     std::chrono::steady_clock::time_point deadline)
      : owner_(owner),
        services_(owner->services_),
        context_(context),
        call_(std::move(call)),
        deadline_(deadline),
        refusal_(Admit().status()) {}

  // REQUIRES: called once, after construction.
  void Start(bool draining) {
    services_.active->Add();
    services_.metrics->StartRpc(RpcMethod::kStreamPlans);
    {
      MutexLock lock(&mutex_);
      self_ = shared_from_this();
      draining_ = draining;
    }
    TsanRelease(this);
    Pump();
  }

  void Drain() {
    {
      MutexLock lock(&mutex_);
      draining_ = true;
    }
    Pump();
  }

 private:
  struct Slot {
    v1::StreamPlansResponse response;
    std::shared_ptr<PlanCaller> caller;
    CallInfo batch;  // for the log
    bool ready = false;
  };
  enum class Action { kNone, kRead, kWrite, kFinish };

  void OnReadDone(bool ok) override {
    TsanEdges edges(this);
    const auto self = shared_from_this();
    if (ok) {
      Submit();
    } else {
      MutexLock lock(&mutex_);
      half_closed_ = true;
      reading_ = false;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    TsanEdges edges(this);
    const auto self = shared_from_this();
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      slots_.pop_front();
    }
    if (ok) {
      Pump();
    } else {
      Abandon();
    }
  }

  void OnCancel() override {
    TsanEdges edges(this);
    const auto self = shared_from_this();
    Abandon();
  }

  void OnDone() override {
    TsanAcquire(this);
    owner_->Remove(this);
    ActiveCalls* const active = services_.active;
    // Batches that nobody will answer any more; their callers hold the stream.
    std::deque<std::shared_ptr<Slot>> slots;
    std::shared_ptr<StreamPlansReactor> self;
    {
      MutexLock lock(&mutex_);
      slots.swap(slots_);
      self.swap(self_);
    }
    slots.clear();
    self.reset();  // may delete this
    active->Remove();
  }

  // The caller, as the auth file names it now.
  absl::StatusOr<Caller> Admit() const {
    return AdmitCall(*owner_->security_, *context_, Access::kUse);
  }

  // Has the batch just read planned.
  void Submit() {
    const auto slot = std::make_shared<Slot>();
    const v1::PlanBatchRequest& batch = request_.batch();
    slot->response.set_step(batch.step());
    slot->response.set_attempt(batch.attempt());
    slot->batch = call_;
    slot->batch.job = batch.job();
    slot->batch.start = services_.clock->MonotonicNow();
    slot->caller = std::make_shared<PlanCaller>(
        deadline_, [self = shared_from_this(),
                    weak = std::weak_ptr(slot)](const PlanOutcome& result) {
          if (const auto done = weak.lock()) self->Complete(done, result);
        });
    bool gone = false;
    {
      MutexLock lock(&mutex_);
      slots_.push_back(slot);
      gone = gone_;
    }
    const absl::StatusOr<Caller> who = Admit();
    if (who.ok()) slot->batch.caller = who->subject;
    if (gone) {
      slot->caller->Complete(GoneError());
    } else if (!who.ok()) {
      slot->caller->Complete(who.status());
    } else {
      Plan({.who = *who, .peer = PeerHost(context_->peer())}, slot->caller);
    }
    MutexLock lock(&mutex_);
    reading_ = false;
  }

  // Hands the batch just read to the backend; the next read fills it anew.
  void Plan(const PlanOrigin& origin,
            const std::shared_ptr<PlanCaller>& caller) {
    v1::PlanBatchRequest* const batch = request_.mutable_batch();
    const auto bytes = static_cast<int64_t>(batch->ByteSizeLong());
    Backend* const backend = owner_->backend_;
    if (bytes <= Backend::kMaxInlineBytes) {
      backend->PlanBatch(origin, std::move(*batch), bytes, caller);
      return;
    }
    const auto message = std::make_shared<v1::PlanBatchRequest>();
    message->Swap(batch);
    backend->PlanUnread(origin,
                        {.request_bytes = bytes,
                         .job = message->job(),
                         .read = [message] { return std::move(*message); }},
                        caller);
  }

  void Complete(const std::shared_ptr<Slot>& slot, const PlanOutcome& result) {
    const double seconds = SecondsSince(slot->batch.start, *services_.clock);
    if (!result.ok()) services_.metrics->CountRefusal(result.status());
    services_.metrics->ObserveRpc(RpcMethod::kStreamPlans, seconds);
    services_.log->Answered(slot->batch, result.status(), seconds);
    FillResponse(result, &slot->response);
    {
      MutexLock lock(&mutex_);
      slot->ready = true;
    }
    Pump();
  }

  // The client went away: what is not planned yet need not be.
  void Abandon() {
    std::vector<std::shared_ptr<PlanCaller>> callers;
    {
      MutexLock lock(&mutex_);
      gone_ = true;
      for (const auto& slot : slots_) callers.push_back(slot->caller);
    }
    for (const auto& caller : callers) {
      caller->Complete(GoneError());
      owner_->backend_->ForgetCaller(caller);
    }
    Pump();
  }

  static absl::Status GoneError() {
    return MakeError({.reason = ErrorReason::kCancelled},
                     "the caller went away");
  }

  // Picks what can be started now and marks it as started.
  Action Next(absl::Status* status) SKRULL_REQUIRES(mutex_) {
    if (finished_) return Action::kNone;
    if (!refusal_.ok()) {
      *status = refusal_;
      finished_ = true;
      return Action::kFinish;
    }
    if (!writing_ && (gone_ || (slots_.empty() && !reading_))) {
      if (gone_) {
        *status = GoneError();
      } else if (half_closed_) {
        *status = absl::OkStatus();
      }
      if (gone_ || half_closed_) {
        finished_ = true;
        return Action::kFinish;
      }
    }
    // A read may be outstanding for ever: draining does not wait for it.
    if (!writing_ && draining_ && slots_.empty()) {
      *status = MakeError({.reason = ErrorReason::kDraining},
                          "the daemon is shutting down");
      finished_ = true;
      return Action::kFinish;
    }
    if (!writing_ && !slots_.empty() && slots_.front()->ready) {
      writing_ = true;
      return Action::kWrite;
    }
    if (!reading_ && !half_closed_ && !draining_ && !gone_ &&
        slots_.size() < kWindow) {
      reading_ = true;
      return Action::kRead;
    }
    return Action::kNone;
  }

  void Pump() {
    const auto self = shared_from_this();
    while (true) {
      absl::Status status;
      Action action;
      const v1::StreamPlansResponse* response = nullptr;
      {
        MutexLock lock(&mutex_);
        if (pumping_) {
          return;
        }
        action = Next(&status);
        if (action == Action::kNone) return;
        pumping_ = true;
        if (action == Action::kWrite) response = &slots_.front()->response;
      }
      TsanRelease(this);
      switch (action) {
        case Action::kRead:
          StartRead(&request_);
          break;
        case Action::kWrite:
          StartWrite(response);
          break;
        case Action::kFinish:
          services_.metrics->CountRpc(RpcMethod::kStreamPlans, status);
          Finish(ToGrpcStatus(status));
          break;
        case Action::kNone:
          break;
      }
      MutexLock lock(&mutex_);
      pumping_ = false;
    }
  }

  PlanStreams* const owner_;
  const CallServices services_;
  const grpc::CallbackServerContext* const context_;  // of the open stream
  const CallInfo call_;
  const std::chrono::steady_clock::time_point deadline_;
  const absl::Status refusal_;  // why nothing is read; OK = it is

  v1::StreamPlansRequest request_;  // of the read under way

  Mutex mutex_;
  std::shared_ptr<StreamPlansReactor> self_ SKRULL_GUARDED_BY(mutex_);
  // In request order: read, and not yet written.
  std::deque<std::shared_ptr<Slot>> slots_ SKRULL_GUARDED_BY(mutex_);
  // Under way: a read up to its batch's submission, a write, a Pump.
  bool reading_ SKRULL_GUARDED_BY(mutex_) = false;
  bool writing_ SKRULL_GUARDED_BY(mutex_) = false;
  bool pumping_ SKRULL_GUARDED_BY(mutex_) = false;
  bool half_closed_ SKRULL_GUARDED_BY(mutex_) = false;  // no more requests
  bool gone_ SKRULL_GUARDED_BY(mutex_) = false;         // cancelled or broken
  bool draining_ SKRULL_GUARDED_BY(mutex_) = false;
  bool finished_ SKRULL_GUARDED_BY(mutex_) = false;  // Finish was called
};

grpc::ServerBidiReactor<v1::StreamPlansRequest, v1::StreamPlansResponse>*
PlanStreams::NewStream(const grpc::CallbackServerContext* context,
                       CallInfo call,
                       std::chrono::steady_clock::time_point deadline) {
  const auto stream = std::make_shared<StreamPlansReactor>(
      this, context, std::move(call), deadline);
  bool draining = false;
  {
    MutexLock lock(&mutex_);
    streams_.emplace(stream.get(), stream);
    draining = draining_;
  }
  stream->Start(draining);
  return stream.get();
}

void PlanStreams::StartDrain() {
  std::vector<std::weak_ptr<StreamPlansReactor>> streams;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& weak : streams) {
    if (const auto stream = weak.lock()) stream->Drain();
  }
}

void PlanStreams::Remove(StreamPlansReactor* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
}

}  // namespace skrull
