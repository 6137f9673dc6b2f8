// What the log says about calls.
//
// Every line about a call has its method and request_id, and its trace_id and
// span_id if the client sent a trace context:
//
//   call_refused  a refusal: reason, message and, after a burst, how many lines
//                 were suppressed. A warning where the daemon is the cause
//   slow_call     it took longer than slow_call_seconds
//   call          at level debug, every call
//
// and the events that handlers log about one. The metadata of a call, which may
// hold secrets, is never logged.
#ifndef SKRULL_SERVER_CALL_LOG_H_
#define SKRULL_SERVER_CALL_LOG_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/clock.h"
#include "skrull/server/log.h"
#include "skrull/server/log_limiter.h"
#include "skrull/server/metrics.h"

namespace skrull {

// One call; of StreamPlans, also one batch. Plain data.
struct CallInfo {
  RpcMethod method = RpcMethod::kGetJob;
  std::string request_id = {};
  std::string trace_id = {};  // empty = no trace context
  std::string span_id = {};
  std::string peer = {};    // address of the client
  std::string caller = {};  // Caller::subject; may be empty
  std::string job = {};     // as the client named it; may be empty
  std::chrono::steady_clock::time_point start = {};
};

// Since the call began.
inline double SecondsSince(std::chrono::steady_clock::time_point start,
                           const Clock& clock) {
  return std::chrono::duration<double>(clock.MonotonicNow() - start).count();
}

// Thread-safe.
class CallLog {
 public:
  // Both must outlive the object. `slow_call_seconds` 0 = no call is slow.
  CallLog(const Logger* logger, const Clock* clock, double slow_call_seconds);

  // The call was answered after `seconds`.
  void Answered(const CallInfo& call, const absl::Status& status,
                double seconds);

  // An event of the call.
  void Event(LogLevel level, const char* event, const CallInfo& call,
             std::vector<LogField> fields);

  // Most lines of one kind: refusals by reason, slow calls, events by method.
  // Some 30 kinds of some 500 bytes are then 150 KB a second at worst, which a
  // log collector takes; a burst shows in the count of what was suppressed.
  static constexpr int64_t kLinesPerSecond = 10;

 private:
  using Limiters = std::vector<std::unique_ptr<LogLimiter>>;

  static Limiters NewLimiters(size_t count);
  // Writes a line, unless the log's level or the limiter drops it.
  void Limited(LogLevel level, const char* event, const CallInfo& call,
               std::vector<LogField> fields, LogLimiter* limiter);
  void Write(LogLevel level, const char* event, const CallInfo& call,
             std::vector<LogField> fields) const;

  const Logger* const logger_;
  const Clock* const clock_;
  const double slow_call_seconds_;
  const Limiters refusals_;  // by ErrorReason
  const Limiters events_;    // by RpcMethod
  LogLimiter slow_{kLinesPerSecond};
};

}  // namespace skrull

#endif  // SKRULL_SERVER_CALL_LOG_H_
