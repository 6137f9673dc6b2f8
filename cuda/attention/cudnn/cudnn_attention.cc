#include "skrull/cuda/attention/cudnn/cudnn_attention.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "skrull/cuda/attention/cudnn/call_split.h"
#include "skrull/cuda/attention/cudnn/fallback.h"
#include "skrull/cuda/attention/cudnn/plan_cache.h"
#include "skrull/cuda/attention/cudnn/refusal.h"
#include "skrull/cuda/attention_check.h"

namespace skrull::exec::cudnn {
namespace {

class CudnnAttention final : public AttentionBackend {
 public:
  CudnnAttention(const CudnnOptions& options, CudnnApi* api,
                 BackendResult fallback, Events* events)
      : options_(options),
        api_(api),
        events_(events),
        cache_(api, options.plan_directory, events),
        fallback_(std::move(fallback), events) {}

  std::string_view name() const override { return "cudnn"; }
  MemoryKind memory() const override { return api_->memory(); }
  // A stride of [heads, rows] is the number of rows, so that no two calls would
  // share a plan.
  LseOrder lse_order() const override { return LseOrder::kRowMajor; }
  int32_t kv_tail_rows() const override {
    return std::max(kKvTailRows, fallback_.kv_tail_rows());
  }

  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(problem));
    const Result<DeviceInfo> device = api_->CurrentDevice();
    SKRULL_EXEC_RETURN_IF_ERROR(device.status());
    const auto refusal = RefuseProblem(problem, pass, *device);
    if (!refusal.has_value()) return {};
    return fallback_.Accepts(*refusal, problem, pass);
  }

  // Room for the fallback too: a call's tensors may lie as cuDNN cannot read
  // them, which nobody knows yet.
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(problem));
    Result<int64_t> spare = fallback_.Prepare(problem, bounds, pass);
    const Result<Choice> choice = Choose(DenseShape(problem, bounds, pass),
                                         nullptr, options_.workspace_bytes);
    SKRULL_EXEC_RETURN_IF_ERROR(choice.status());
    if (const auto* refusal = std::get_if<Refusal>(&*choice)) {
      SKRULL_EXEC_RETURN_IF_ERROR(fallback_.Accepts(*refusal, problem, pass));
      return spare;
    }
    return std::max(std::get<CallSplit>(*choice).bytes,
                    spare.ok() ? *spare : 0);
  }

  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(call.problem));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckForward(call));
    const Result<Choice> choice =
        ChooseForCall(call, Pass::kForward, workspace);
    SKRULL_EXEC_RETURN_IF_ERROR(choice.status());
    if (const auto* refusal = std::get_if<Refusal>(&*choice)) {
      return fallback_.Forward(*refusal, call, workspace, stream);
    }
    return Run(std::get<CallSplit>(*choice), call, workspace, stream);
  }

  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(call.problem));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckBackward(call));
    const Result<Choice> choice =
        ChooseForCall(call, Pass::kBackward, workspace);
    SKRULL_EXEC_RETURN_IF_ERROR(choice.status());
    if (const auto* refusal = std::get_if<Refusal>(&*choice)) {
      return fallback_.Backward(*refusal, call, workspace, stream);
    }
    return Run(std::get<CallSplit>(*choice), call, workspace, stream);
  }

 private:
  // `tensors`: null before there are any.
  Result<Choice> Choose(const CallShape& shape, const CallTensors* tensors,
                        int64_t budget) {
    const Result<DeviceInfo> device = api_->CurrentDevice();
    SKRULL_EXEC_RETURN_IF_ERROR(device.status());
    auto refusal = RefuseProblem(shape.problem, shape.pass, *device);
    if (!refusal.has_value()) refusal = RefuseBounds(shape.bounds);
    for (const Role role : kAllRoles) {
      if (refusal.has_value() || tensors == nullptr) break;
      if (!IsPartOf(role, shape.pass)) continue;
      refusal = RefuseLayout(role, (*tensors)[Index(role)]);
    }
    if (refusal.has_value()) return Choice(*std::move(refusal));
    return ChooseSplit(shape, *device, budget, &cache_);
  }

  // Errors: INVALID_ARGUMENT if Prepare asks for a larger workspace.
  template <class Call>
  Result<Choice> ChooseForCall(const Call& call, Pass pass,
                               Workspace workspace) {
    const SegmentBounds& bounds = call.segments.bounds;
    const int64_t given = workspace.data == nullptr ? 0 : workspace.bytes;
    const CallTensors tensors = TensorsOf(call);
    Result<Choice> choice =
        Choose(ShapeOf(call.problem, bounds, pass, tensors), &tensors,
               std::min(options_.workspace_bytes, given));
    SKRULL_EXEC_RETURN_IF_ERROR(choice.status());
    const auto* refusal = std::get_if<Refusal>(&*choice);
    if (refusal == nullptr || refusal->reason != Reason::kWorkspace) {
      return choice;
    }
    const Result<int64_t> needed = Prepare(call.problem, bounds, pass);
    SKRULL_EXEC_RETURN_IF_ERROR(needed.status());
    if (*needed <= given) return choice;
    return InvalidArgument("a workspace of " + std::to_string(given) +
                           " bytes, where " + std::to_string(*needed) +
                           " are needed");
  }

  template <class Call>
  Status Run(const CallSplit& split, const Call& call, Workspace workspace,
             Stream stream) {
    SKRULL_EXEC_RETURN_IF_ERROR(RunSplit(split, call.segments, TensorsOf(call),
                                         workspace.data, stream, api_));
    events_->Computed();
    return {};
  }

  const CudnnOptions options_;
  CudnnApi* const api_;
  Events* const events_;
  PlanCache cache_;
  Fallback fallback_;
};

}  // namespace

std::unique_ptr<AttentionBackend> CreateCudnnAttention(
    const CudnnOptions& options, CudnnApi* api, BackendResult fallback,
    Events* events) {
  return std::make_unique<CudnnAttention>(options, api, std::move(fallback),
                                          events);
}

}  // namespace skrull::exec::cudnn
