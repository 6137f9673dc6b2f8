// What all server reactors share.
//
// ThreadSanitizer cannot see the happens-before edges that a prebuilt gRPC
// establishes between a reactor's callbacks. TsanEdges marks them, so that our
// handlers are checked without false reports; in other builds it is empty.
#ifndef SKRULL_SERVER_REACTORS_H_
#define SKRULL_SERVER_REACTORS_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "skrull/server/call_log.h"
#include "skrull/server/clock.h"
#include "skrull/server/metrics.h"
#include "skrull/server/mutex.h"
#include "skrull/server/status_util.h"
#include "skrull/server/trace_context.h"
#include "skrull/server/tsan.h"

namespace skrull {

// Lives through one callback of `reactor`.
class TsanEdges {
 public:
  explicit TsanEdges(void* reactor) : reactor_(reactor) {
    TsanAcquire(reactor_);
  }
  ~TsanEdges() { TsanRelease(reactor_); }
  TsanEdges(const TsanEdges&) = delete;
  TsanEdges& operator=(const TsanEdges&) = delete;

 private:
  void* const reactor_;
};

// How many calls are being answered, for draining. Thread-safe.
class ActiveCalls {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++count_;
  }
  void Remove() {
    MutexLock lock(&mutex_);
    if (--count_ == 0) none_.SignalAll();
  }
  // Returns once there is no call, or at `deadline`. True if there is none.
  bool WaitForNone(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(&mutex_);
    while (count_ > 0) {
      if (!none_.WaitUntil(&mutex_, deadline)) return count_ == 0;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int64_t count_ SKRULL_GUARDED_BY(mutex_) = 0;
};

// What every call of a service uses; all must outlive the calls.
struct CallServices {
  Metrics* metrics;
  CallLog* log;
  const Clock* clock;
  RequestIds* request_ids;
  ActiveCalls* active;
};

// Who asks, and since when. Answers the client with the call's request id, as
// initial metadata. REQUIRES: called in the handler.
CallInfo BeginCall(RpcMethod method, const CallServices& services,
                   grpc::CallbackServerContext* context);

// One unary call. Made by a handler, deletes itself when gRPC is done with it.
// Answer must be called exactly once, on any thread; nothing may touch the
// call, its request or its response after that.
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(RpcMethod method, const CallServices& services,
            grpc::CallbackServerContext* context)
      : services_(services), info_(BeginCall(method, services, context)) {
    services_.active->Add();
    services_.metrics->StartRpc(info_.method);
    TsanRelease(this);
  }

  // The job that the call is about, for the log. REQUIRES: called in the
  // handler, before anything that could answer.
  void SetJob(const std::string& job) {
    info_.job = job;
    TsanRelease(this);
  }

  // Who makes the call, for the log. REQUIRES: as SetJob.
  void SetCaller(const std::string& subject) {
    info_.caller = subject;
    TsanRelease(this);
  }

  // Logs an event of the call. REQUIRES: it is not answered.
  void Log(LogLevel level, const char* event,
           std::vector<LogField> fields = {}) const {
    services_.log->Event(level, event, info_, std::move(fields));
  }

  void Answer(const absl::Status& status) {
    const double seconds = SecondsSince(info_.start, *services_.clock);
    services_.metrics->CountRpc(info_.method, status);
    services_.metrics->ObserveRpc(info_.method, seconds);
    services_.log->Answered(info_, status, seconds);
    TsanRelease(this);
    Finish(ToGrpcStatus(status));
    TsanRelease(this);  // an address only: the call may be gone
  }

  // Has `gone` called if the caller goes away before it is answered. The call
  // may be answered by then, or at the same time. If the caller has gone
  // already, calls it at once. REQUIRES: called at most once, before anything
  // that could answer.
  void OnGone(std::function<void()> gone) {
    {
      MutexLock lock(&mutex_);
      if (!is_gone_) {
        gone_ = std::move(gone);
        return;
      }
    }
    gone();
  }

 private:
  void OnCancel() override {
    TsanEdges edges(this);
    std::function<void()> gone;
    {
      MutexLock lock(&mutex_);
      is_gone_ = true;
      gone.swap(gone_);
    }
    if (gone) gone();
  }
  void OnDone() override {
    TsanAcquire(this);
    ActiveCalls* const active = services_.active;
    delete this;
    active->Remove();
  }

  const CallServices services_;
  CallInfo info_;
  Mutex mutex_;
  bool is_gone_ SKRULL_GUARDED_BY(mutex_) = false;
  std::function<void()> gone_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_REACTORS_H_
