#include "skrull/tests/bench/load/recorder.h"

#include <utility>

namespace skrull::load {
namespace {

int64_t Micros(Time from, Time to) {
  return std::chrono::duration_cast<std::chrono::microseconds>(to - from)
      .count();
}

std::string Reason(const v1::RpcStatus& status, int code) {
  v1::ErrorDetail detail;
  if (status.details_size() > 0 && status.details(0).UnpackTo(&detail)) {
    return detail.reason();
  }
  return "gRPC code " + std::to_string(code);
}

}  // namespace

const char* MethodName(Method method) {
  constexpr const char* kNames[kMethods] = {"PlanBatch", "GetRankPlan",
                                            "ReportStep", "StreamPlans"};
  return kNames[static_cast<size_t>(method)];
}

std::string ReasonOf(const grpc::Status& status) {
  v1::RpcStatus message;
  if (!message.ParseFromString(status.error_details())) message.Clear();
  return Reason(message, static_cast<int>(status.error_code()));
}

std::string ReasonOf(const v1::RpcStatus& status) {
  return Reason(status, status.code());
}

void Recorder::Add(Method method, Time due, Time sent,
                   const std::string& reason) {
  if (due < begin_) return;
  const int64_t micros = Micros(due, std::chrono::steady_clock::now());
  std::lock_guard<std::mutex> lock(mutex_);
  Row& row = totals_.rows[static_cast<size_t>(method)];
  (reason.empty() ? row.answered : row.refused[reason]).Add(micros);
  totals_.lag.Add(Micros(due, sent));
}

void Recorder::HoldBack(Time due) {
  if (due < begin_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  ++totals_.held_back;
}

Recorder::Totals Recorder::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(totals_, {});
}

}  // namespace skrull::load
