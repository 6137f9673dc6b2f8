#include "skrull/server/call_log.h"

#include <optional>
#include <utility>

#include "skrull/planner/error.h"

namespace skrull {
namespace {

// How much a refusal matters to who runs the daemon.
LogLevel LevelOf(const absl::Status& status, ErrorReason reason) {
  // Clients go away as they like, and a daemon that stops is known to.
  if (reason == ErrorReason::kCancelled) return LogLevel::kDebug;
  if (reason == ErrorReason::kDraining) return LogLevel::kInfo;
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
      return LogLevel::kWarning;
    default:
      return LogLevel::kInfo;
  }
}

// These wait for other ranks, for as long as their callers like.
bool WaitsForOthers(RpcMethod method) {
  return method == RpcMethod::kGetRankPlan || method == RpcMethod::kRendezvous;
}

}  // namespace

CallLog::CallLog(const Logger* logger, const Clock* clock,
                 double slow_call_seconds)
    : logger_(logger),
      clock_(clock),
      slow_call_seconds_(slow_call_seconds),
      refusals_(NewLimiters(AllErrorReasons().size())),
      events_(NewLimiters(kRpcMethods)) {}

CallLog::Limiters CallLog::NewLimiters(size_t count) {
  Limiters limiters;
  while (limiters.size() < count) {
    limiters.push_back(std::make_unique<LogLimiter>(kLinesPerSecond));
  }
  return limiters;
}

void CallLog::Answered(const CallInfo& call, const absl::Status& status,
                       double seconds) {
  if (!status.ok()) {
    const ErrorReason reason =
        GetErrorDetail(status).value_or(ErrorDetail{}).reason;
    Limited(LevelOf(status, reason), "call_refused", call,
            {{"reason", ErrorReasonName(reason)},
             {"seconds", seconds},
             {"message", std::string(status.message())}},
            refusals_[static_cast<size_t>(reason)].get());
  }
  if (slow_call_seconds_ > 0 && seconds > slow_call_seconds_ &&
      !WaitsForOthers(call.method)) {
    Limited(LogLevel::kWarning, "slow_call", call, {{"seconds", seconds}},
            &slow_);
  }
  if (logger_->Writes(LogLevel::kDebug)) {
    Write(LogLevel::kDebug, "call", call,
          {{"code", absl::StatusCodeToString(status.code())},
           {"seconds", seconds}});
  }
}

void CallLog::Event(LogLevel level, const char* event, const CallInfo& call,
                    std::vector<LogField> fields) {
  Limited(level, event, call, std::move(fields),
          events_[static_cast<size_t>(call.method)].get());
}

void CallLog::Limited(LogLevel level, const char* event, const CallInfo& call,
                      std::vector<LogField> fields, LogLimiter* limiter) {
  if (!logger_->Writes(level)) return;
  const std::optional<int64_t> suppressed =
      limiter->Pass(clock_->MonotonicNow());
  if (!suppressed) return;
  if (*suppressed > 0) fields.push_back({"suppressed", *suppressed});
  Write(level, event, call, std::move(fields));
}

void CallLog::Write(LogLevel level, const char* event, const CallInfo& call,
                    std::vector<LogField> fields) const {
  std::vector<LogField> all = {{"method", RpcMethodName(call.method)},
                               {"request_id", call.request_id}};
  if (!call.trace_id.empty()) {
    all.push_back({"trace_id", call.trace_id});
    all.push_back({"span_id", call.span_id});
  }
  if (!call.peer.empty()) all.push_back({"peer", call.peer});
  if (!call.caller.empty()) all.push_back({"caller", call.caller});
  if (!call.job.empty()) all.push_back({"job", call.job});
  for (LogField& field : fields) all.push_back(std::move(field));
  logger_->Log(level, event, all);
}

}  // namespace skrull
