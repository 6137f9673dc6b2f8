#include "skrull/cuda/executor.h"

#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/call_guard.h"
#include "skrull/cuda/engine.h"
#include "skrull/cuda/executor_check.h"
#include "skrull/cuda/step_state.h"

namespace skrull::exec {

using internal::WithoutExceptions;

class Executor::Impl {
 public:
  Impl(const ExecutorOptions& options, const ExecutorResources& resources)
      : options_(options),
        resources_(resources),
        guard_(resources.device, resources.communicators) {}

  ~Impl() {
    // Blocks' buffers go with the engine, once the comm stream has run empty.
    if (guard_.fence() != nullptr) guard_.fence()->HostWait();
  }

  Status Start() {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckOptions(options_));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckResources(options_.problem, resources_));
    SKRULL_EXEC_RETURN_IF_ERROR(guard_.Start());
    auto core =
        internal::EngineCore::Create(options_, resources_, guard_.fence());
    SKRULL_EXEC_RETURN_IF_ERROR(core.status());
    engine_ = options_.exchange == Exchange::kRing
                  ? internal::NewRingEngine(*std::move(core))
                  : internal::NewAllGatherEngine(*std::move(core));
    return {};
  }

  internal::CallGuard& guard() { return guard_; }

  // Sets `disagreed` if the ranks hold different plans.
  Status Prepare(const RankPlan& plan, internal::StepState* state,
                 bool* disagreed) {
    SKRULL_EXEC_RETURN_IF_ERROR(BuildState(plan, state));
    const Status agreed = resources_.agreement->Agree(plan.digest);
    *disagreed = agreed.code() == StatusCode::kFailedPrecondition;
    SKRULL_EXEC_RETURN_IF_ERROR(agreed);
    SKRULL_EXEC_RETURN_IF_ERROR(
        resources_.communicators->Announce(plan.blocks));
    SKRULL_EXEC_RETURN_IF_ERROR(internal::Place(device(), state));
    return engine_->Reserve(*state);
  }

  template <class Enqueue>
  Status Call(const Step& step, int32_t micro_batch, Stream stream,
              const Enqueue& enqueue) {
    if (step.state().fence != guard_.fence()) {
      return InvalidArgument("the step is another executor's");
    }
    if (micro_batch < 0 || micro_batch >= step.micro_batch_count()) {
      return InvalidArgument("micro_batch is " + std::to_string(micro_batch) +
                             ", where the step has " +
                             std::to_string(step.micro_batch_count()));
    }
    return guard_.Run(stream, [&] {
      return enqueue(
          step.state().micro_batches[static_cast<size_t>(micro_batch)]);
    });
  }

  template <class Tensors>
  Status Check(const internal::MicroBatchState& mb, const Tensors& t) const {
    return CheckTensors(options_.problem, mb.maps.rows,
                        resources_.backend->lse_order(), t);
  }

  Status Forward(const internal::MicroBatchState& mb, const ForwardTensors& t,
                 Stream stream) {
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, t));
    return engine_->Forward(mb, t, stream);
  }

  Status Backward(const internal::MicroBatchState& mb, const BackwardTensors& t,
                  Stream stream) {
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, t));
    return engine_->Backward(mb, t, stream);
  }

 private:
  Device* device() const { return resources_.device; }

  // The part of a step that needs neither device nor other ranks.
  Status BuildState(const RankPlan& plan, internal::StepState* state) const {
    if (plan.rank != resources_.communicators->rank()) {
      return InvalidArgument("the plan is rank " + std::to_string(plan.rank) +
                             "'s, where this is rank " +
                             std::to_string(resources_.communicators->rank()));
    }
    if (plan.chunk_plan.has_value()) {
      return {StatusCode::kUnsupported,
              "a chunk plan has no micro-batches; a ChunkExecutor runs it"};
    }
    // The gather and the reduction take time as their bytes.
    const auto gather = static_cast<double>(SizeOf(options_.problem.dtype));
    const auto reduce = static_cast<double>(
        SizeOf(options_.grad_comm_dtype.value_or(options_.problem.dtype)));
    state->fence = guard_.fence();
    for (const RankMicroBatch& micro_batch : plan.micro_batches) {
      Result<MicroBatchMaps> maps =
          BuildMaps(micro_batch, plan.rank, gather / (gather + reduce));
      SKRULL_EXEC_RETURN_IF_ERROR(maps.status());
      internal::MicroBatchState mb;
      if (options_.exchange == Exchange::kRing) {
        mb.ring_maps = BuildRingSteps(micro_batch, *maps);
      }
      mb.maps = *std::move(maps);
      state->micro_batches.push_back(std::move(mb));
    }
    return {};
  }

  const ExecutorOptions options_;
  const ExecutorResources resources_;
  internal::CallGuard guard_;
  std::unique_ptr<internal::Engine> engine_;
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::Create(
    const ExecutorOptions& options, const ExecutorResources& resources) {
  std::unique_ptr<Executor> executor;
  const Status status = WithoutExceptions([&] {
    auto impl = std::make_unique<Impl>(options, resources);
    SKRULL_EXEC_RETURN_IF_ERROR(impl->Start());
    executor.reset(new Executor(std::move(impl)));
    return Status();
  });
  SKRULL_EXEC_RETURN_IF_ERROR(status);
  return executor;
}

Result<Step> Executor::Prepare(const RankPlan& plan) {
  SKRULL_EXEC_RETURN_IF_ERROR(Poll());
  std::unique_ptr<internal::StepState> state;
  bool disagreed = false;
  const Status status = WithoutExceptions([&] {
    state = std::make_unique<internal::StepState>();
    return impl_->Prepare(plan, state.get(), &disagreed);
  });
  if (disagreed) return status;
  impl_->guard().Fail(status);
  SKRULL_EXEC_RETURN_IF_ERROR(impl_->guard().failure());
  return Step(std::move(state));
}

Status Executor::Forward(const Step& step, int32_t micro_batch,
                         const ForwardTensors& tensors, Stream stream) {
  return impl_->guard().Guarded([&] {
    return impl_->Call(step, micro_batch, stream,
                       [&](const internal::MicroBatchState& mb) {
                         return impl_->Forward(mb, tensors, stream);
                       });
  });
}

Status Executor::Backward(const Step& step, int32_t micro_batch,
                          const BackwardTensors& tensors, Stream stream) {
  return impl_->guard().Guarded([&] {
    return impl_->Call(step, micro_batch, stream,
                       [&](const internal::MicroBatchState& mb) {
                         return impl_->Backward(mb, tensors, stream);
                       });
  });
}

Status Executor::Poll() { return impl_->guard().Poll(); }

Status Executor::Wait(std::chrono::nanoseconds timeout) {
  return impl_->guard().Wait(timeout);
}

void Executor::Abort(const Status& cause) noexcept {
  impl_->guard().Fail(cause);
}

}  // namespace skrull::exec
