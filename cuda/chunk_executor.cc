#include "skrull/cuda/chunk_executor.h"

#include <string>
#include <utility>

#include "skrull/cuda/call_guard.h"
#include "skrull/cuda/chunk_engine.h"
#include "skrull/cuda/chunk_order.h"
#include "skrull/cuda/chunk_step_state.h"
#include "skrull/cuda/executor_check.h"

namespace skrull::exec {

using internal::WithoutExceptions;

class ChunkExecutor::Impl {
 public:
  Impl(const ChunkExecutorOptions& options, const ExecutorResources& resources)
      : options_(options),
        resources_(resources),
        guard_(resources.device, resources.communicators) {}

  ~Impl() {
    // Buffers go with the engine, once the streams have run empty.
    if (guard_.fence() != nullptr) guard_.fence()->HostWait();
  }

  Status Start() {
    const ExecutorOptions core_options{
        .problem = options_.problem,
        .exchange = Exchange::kAllGather,
        .grad_comm_dtype = options_.grad_comm_dtype};
    SKRULL_EXEC_RETURN_IF_ERROR(CheckOptions(core_options));
    if (options_.layer_count < 1) {
      return InvalidArgument("layer_count is " +
                             std::to_string(options_.layer_count));
    }
    SKRULL_EXEC_RETURN_IF_ERROR(CheckResources(options_.problem, resources_));
    SKRULL_EXEC_RETURN_IF_ERROR(guard_.Start());
    auto core =
        internal::EngineCore::Create(core_options, resources_, guard_.fence());
    SKRULL_EXEC_RETURN_IF_ERROR(core.status());
    engine_ = std::make_unique<internal::ChunkEngine>(*std::move(core),
                                                      options_.layer_count);
    return {};
  }

  internal::CallGuard& guard() { return guard_; }
  int64_t store_bytes() const { return engine_->store_bytes(); }

  // Sets `disagreed` if the ranks hold different plans.
  Status Prepare(const RankPlan& plan, internal::ChunkStepState* state,
                 bool* disagreed) {
    SKRULL_EXEC_RETURN_IF_ERROR(BuildState(plan, state));
    const Status agreed = resources_.agreement->Agree(plan.digest);
    *disagreed = agreed.code() == StatusCode::kFailedPrecondition;
    SKRULL_EXEC_RETURN_IF_ERROR(agreed);
    SKRULL_EXEC_RETURN_IF_ERROR(
        resources_.communicators->Announce(plan.blocks));
    SKRULL_EXEC_RETURN_IF_ERROR(
        internal::PlaceChunks(resources_.device, state));
    SKRULL_EXEC_RETURN_IF_ERROR(engine_->Reserve(*state));
    state->number = ++prepared_;
    progress_ = ChunkProgress(options_.layer_count);
    return {};
  }

  Status Forward(const ChunkStep& step, int32_t operation, int32_t layer,
                 const ForwardTensors& t, Stream stream) {
    return Call(step, operation, layer, false, t, stream, [&] {
      return engine_->Forward(step.state(), operation, layer, t, stream);
    });
  }

  Status Backward(const ChunkStep& step, int32_t operation, int32_t layer,
                  const BackwardTensors& t, Stream stream) {
    return Call(step, operation, layer, true, t, stream, [&] {
      return engine_->Backward(step.state(), operation, layer, t, stream);
    });
  }

 private:
  template <class Tensors, class Enqueue>
  Status Call(const ChunkStep& step, int32_t operation, int32_t layer,
              bool backward, const Tensors& tensors, Stream stream,
              const Enqueue& enqueue) {
    const internal::ChunkStepState& state = step.state();
    if (state.fence != guard_.fence()) {
      return InvalidArgument("the step is another executor's");
    }
    if (state.number != prepared_) {
      return InvalidArgument("another step has been prepared since");
    }
    SKRULL_EXEC_RETURN_IF_ERROR(
        progress_.Advance(state.operations, operation, layer, backward));
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckTensors(options_.problem, step.maps(operation).rows,
                     resources_.backend->lse_order(), tensors));
    return guard_.Run(stream, enqueue);
  }

  // The part of a step that needs neither device nor other ranks.
  Status BuildState(const RankPlan& plan,
                    internal::ChunkStepState* state) const {
    if (plan.rank != resources_.communicators->rank()) {
      return InvalidArgument("the plan is rank " + std::to_string(plan.rank) +
                             "'s, where this is rank " +
                             std::to_string(resources_.communicators->rank()));
    }
    if (!plan.chunk_plan.has_value() || !plan.micro_batches.empty()) {
      return {StatusCode::kUnsupported,
              "a plan of micro-batches has no chunks; an Executor runs it"};
    }
    Result<ChunkProgram> program = BuildChunkProgram(
        *plan.chunk_plan, plan.rank, resources_.backend->kv_tail_rows());
    SKRULL_EXEC_RETURN_IF_ERROR(program.status());
    state->fence = guard_.fence();
    state->operations = plan.chunk_plan->operations;
    state->program = *std::move(program);
    return {};
  }

  const ChunkExecutorOptions options_;
  const ExecutorResources resources_;
  internal::CallGuard guard_;
  std::unique_ptr<internal::ChunkEngine> engine_;
  // The number of the last step that was prepared, from 1, and where its calls
  // stand.
  int64_t prepared_ = 0;
  ChunkProgress progress_{1};
};

ChunkExecutor::ChunkExecutor(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

ChunkExecutor::~ChunkExecutor() = default;

Result<std::unique_ptr<ChunkExecutor>> ChunkExecutor::Create(
    const ChunkExecutorOptions& options, const ExecutorResources& resources) {
  std::unique_ptr<ChunkExecutor> executor;
  const Status status = WithoutExceptions([&] {
    auto impl = std::make_unique<Impl>(options, resources);
    SKRULL_EXEC_RETURN_IF_ERROR(impl->Start());
    executor.reset(new ChunkExecutor(std::move(impl)));
    return Status();
  });
  SKRULL_EXEC_RETURN_IF_ERROR(status);
  return executor;
}

Result<ChunkStep> ChunkExecutor::Prepare(const RankPlan& plan) {
  SKRULL_EXEC_RETURN_IF_ERROR(Poll());
  std::unique_ptr<internal::ChunkStepState> state;
  bool disagreed = false;
  const Status status = WithoutExceptions([&] {
    state = std::make_unique<internal::ChunkStepState>();
    return impl_->Prepare(plan, state.get(), &disagreed);
  });
  if (disagreed) return status;
  impl_->guard().Fail(status);
  SKRULL_EXEC_RETURN_IF_ERROR(impl_->guard().failure());
  return ChunkStep(std::move(state));
}

Status ChunkExecutor::Forward(const ChunkStep& step, int32_t operation,
                              int32_t layer, const ForwardTensors& tensors,
                              Stream stream) {
  return impl_->guard().Guarded(
      [&] { return impl_->Forward(step, operation, layer, tensors, stream); });
}

Status ChunkExecutor::Backward(const ChunkStep& step, int32_t operation,
                               int32_t layer, const BackwardTensors& tensors,
                               Stream stream) {
  return impl_->guard().Guarded(
      [&] { return impl_->Backward(step, operation, layer, tensors, stream); });
}

int64_t ChunkExecutor::store_bytes() const { return impl_->store_bytes(); }

Status ChunkExecutor::Poll() { return impl_->guard().Poll(); }

Status ChunkExecutor::Wait(std::chrono::nanoseconds timeout) {
  return impl_->guard().Wait(timeout);
}

void ChunkExecutor::Abort(const Status& cause) noexcept {
  impl_->guard().Fail(cause);
}

}  // namespace skrull::exec
