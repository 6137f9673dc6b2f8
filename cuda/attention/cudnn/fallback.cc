#include "skrull/cuda/attention/cudnn/fallback.h"

#include <string>
#include <utility>

namespace skrull::exec::cudnn {
namespace {

Status WhyNone(const BackendResult& backend) {
  if (!backend.ok()) return backend.status();
  if ((*backend)->lse_order() != LseOrder::kHeadMajor) return {};
  return {StatusCode::kUnsupported, "backend " +
                                        std::string((*backend)->name()) +
                                        " keeps its LSE as [heads, rows]"};
}

}  // namespace

Fallback::Fallback(BackendResult backend, Events* events)
    : why_none_(WhyNone(backend)),
      backend_(why_none_.ok() ? *std::move(backend) : nullptr),
      events_(events) {}

Status Fallback::Accepts(const Refusal& refusal,
                         const AttentionProblem& problem, Pass pass) const {
  const Status status =
      backend_ == nullptr ? why_none_ : backend_->Supports(problem, pass);
  if (!status.ok()) {
    return {StatusCode::kUnsupported,
            refusal.text + ". Nor is there a fallback: " + status.message()};
  }
  events_->LogOnce(
      ReasonName(refusal.reason),
      std::string(pass == Pass::kForward ? "forward" : "backward") +
          " calls go to backend " + std::string(backend_->name()) + ": " +
          refusal.text);
  return {};
}

Result<int64_t> Fallback::Prepare(const AttentionProblem& problem,
                                  const SegmentBounds& bounds, Pass pass) {
  if (backend_ == nullptr) return why_none_;
  SKRULL_EXEC_RETURN_IF_ERROR(backend_->Supports(problem, pass));
  return backend_->Prepare(problem, bounds, pass);
}

Status Fallback::Forward(const Refusal& refusal, const AttentionForward& call,
                         Workspace workspace, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Accepts(refusal, call.problem, Pass::kForward));
  events_->FellBack(refusal.reason);
  return backend_->Forward(call, workspace, stream);
}

Status Fallback::Backward(const Refusal& refusal, const AttentionBackward& call,
                          Workspace workspace, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Accepts(refusal, call.problem, Pass::kBackward));
  events_->FellBack(refusal.reason);
  return backend_->Backward(call, workspace, stream);
}

}  // namespace skrull::exec::cudnn
