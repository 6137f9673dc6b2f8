#include "skrull/cuda/executor.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/cuda/attention_check.h"
#include "skrull/cuda/engine.h"
#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/step_state.h"

namespace skrull::exec {
namespace {

// Runs `work` and turns what it throws into a Status.
template <class Work>
Status WithoutExceptions(const Work& work) noexcept {
  try {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return {StatusCode::kOutOfMemory, "no host memory"};
    } catch (const std::exception& e) {
      return {StatusCode::kInternal, e.what()};
    } catch (...) {
      return {StatusCode::kInternal, "an unknown exception"};
    }
  } catch (...) {  // no memory for the message
    return {StatusCode::kOutOfMemory, {}};
  }
}

Status CheckLseOrder(const Tensor& lse, LseOrder order) {
  if (lse.rows <= 1 || lse.heads <= 1) return {};
  if (order == LseOrder::kRowMajor && lse.head_stride != 1) {
    return InvalidArgument("lse must be [rows, heads] for this backend");
  }
  if (order == LseOrder::kHeadMajor && lse.row_stride != 1) {
    return InvalidArgument("lse must be [heads, rows] for this backend");
  }
  return {};
}

Status CheckOptions(const ExecutorOptions& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(options.problem));
  const DType accumulator = AccumulatorOf(options.problem.dtype);
  if (options.exchange != Exchange::kAllGather &&
      options.exchange != Exchange::kRing) {
    return InvalidArgument(
        "exchange " + std::to_string(static_cast<int32_t>(options.exchange)) +
        " is not known");
  }
  const DType grad = options.grad_comm_dtype.value_or(accumulator);
  const bool own =
      grad == options.problem.dtype && options.exchange == Exchange::kAllGather;
  if (grad != accumulator && !own) {
    return InvalidArgument("grad_comm_dtype is " +
                           std::string(DTypeName(grad)) + ", which a " +
                           std::string(DTypeName(options.problem.dtype)) +
                           " problem cannot have with this exchange");
  }
  return {};
}

Status CheckResources(const ExecutorOptions& options,
                      const ExecutorResources& resources) {
  for (const auto& [name, given] :
       {std::pair("device", resources.device != nullptr),
        std::pair("backend", resources.backend != nullptr),
        std::pair("communicators", resources.communicators != nullptr),
        std::pair("agreement", resources.agreement != nullptr)}) {
    if (!given) return InvalidArgument(std::string(name) + " is null");
  }
  if (resources.device->memory() != resources.backend->memory()) {
    return InvalidArgument("backend " + std::string(resources.backend->name()) +
                           " does not work on the memory of device " +
                           std::string(resources.device->name()));
  }
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        resources.backend->Supports(options.problem, pass));
  }
  return {};
}

}  // namespace

class Executor::Impl {
 public:
  Impl(const ExecutorOptions& options, const ExecutorResources& resources)
      : options_(options), resources_(resources) {}

  ~Impl() {
    // Blocks' buffers go with the engine, once the comm stream has run empty.
    if (fence_ != nullptr) fence_->HostWait();
  }

  Status Start() {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckOptions(options_));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckResources(options_, resources_));
    Result<Event> done = device()->CreateEvent();
    SKRULL_EXEC_RETURN_IF_ERROR(done.status());
    fence_ = std::make_shared<internal::Fence>(device(), *done);
    auto core = internal::EngineCore::Create(options_, resources_, fence_);
    SKRULL_EXEC_RETURN_IF_ERROR(core.status());
    engine_ = options_.exchange == Exchange::kRing
                  ? internal::NewRingEngine(*std::move(core))
                  : internal::NewAllGatherEngine(*std::move(core));
    return {};
  }

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

  // Between the end of the last call and the recording of this one's.
  template <class Enqueue>
  Status Call(const Step& step, int32_t micro_batch, Stream stream,
              const Enqueue& enqueue) {
    if (step.state().fence != fence_) {
      return InvalidArgument("the step is another executor's");
    }
    if (micro_batch < 0 || micro_batch >= step.micro_batch_count()) {
      return InvalidArgument("micro_batch is " + std::to_string(micro_batch) +
                             ", where the step has " +
                             std::to_string(step.micro_batch_count()));
    }
    SKRULL_EXEC_RETURN_IF_ERROR(device()->Wait(stream, fence_->done()));
    const Status status =
        enqueue(step.state().micro_batches[static_cast<size_t>(micro_batch)]);
    // Also after a failure: what was enqueued uses the step.
    const Status recorded = device()->Record(fence_->done(), stream);
    if (!recorded.ok()) (void)device()->Synchronize(stream);
    return status.ok() ? recorded : status;
  }

  Status Check(const internal::MicroBatchState& mb, const char* name,
               const Tensor& tensor, int32_t heads) const {
    return CheckTensor(name, tensor, options_.problem.dtype, mb.maps.rows,
                       heads, options_.problem.head_dim);
  }

  Status Forward(const internal::MicroBatchState& mb, const ForwardTensors& t,
                 Stream stream) {
    const AttentionProblem& p = options_.problem;
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "q", t.q, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "k", t.k, p.kv_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "v", t.v, p.kv_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "o", t.o, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckLse(mb, t.lse));
    return engine_->Forward(mb, t, stream);
  }

  Status Backward(const internal::MicroBatchState& mb, const BackwardTensors& t,
                  Stream stream) {
    const AttentionProblem& p = options_.problem;
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "q", t.q, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "k", t.k, p.kv_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "v", t.v, p.kv_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "o", t.o, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckLse(mb, t.lse));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "d_o", t.d_o, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "dq", t.dq, p.q_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "dk", t.dk, p.kv_heads));
    SKRULL_EXEC_RETURN_IF_ERROR(Check(mb, "dv", t.dv, p.kv_heads));
    return engine_->Backward(mb, t, stream);
  }

  // Asks device and communicators, unless it has failed already.
  Status Poll() {
    SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
    Status status = resources_.communicators->Poll();
    if (status.ok()) status = device()->Poll();
    Fail(status);
    return failure_.Get();
  }

  Status Wait(std::chrono::nanoseconds timeout) {
    using std::chrono::steady_clock;
    const auto begin = steady_clock::now();
    while (true) {
      (void)Poll();
      const Result<bool> done = device()->Query(fence_->done());
      // After a failure too, work that runs on uses the caller's tensors.
      if (done.ok() && *done) return Poll();
      if (!done.ok()) Fail(done.status());
      const std::chrono::nanoseconds waited = steady_clock::now() - begin;
      if (waited >= timeout) {
        Fail({StatusCode::kDeadlineExceeded,
              "the work of the executor's calls did not end in time"});
        return failure_.Get();
      }
      // Late by a part of the wait, so that asking costs next to nothing.
      std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(
          waited / 64, std::chrono::microseconds(10),
          std::chrono::milliseconds(5)));
    }
  }

  // No effect if `cause` is OK, or if it failed before.
  void Fail(const Status& cause) noexcept {
    if (cause.ok()) return;
    // A device that failed makes its communicators fail: then it is the cause.
    const Status own = device()->Poll();
    const Status& first = own.ok() ? cause : own;
    if (failure_.Set(first)) resources_.communicators->Abort(first);
  }

  Status failure() const { return failure_.Get(); }

 private:
  Device* device() const { return resources_.device; }

  Status CheckLse(const internal::MicroBatchState& mb,
                  const Tensor& lse) const {
    const AttentionProblem& p = options_.problem;
    SKRULL_EXEC_RETURN_IF_ERROR(CheckTensor("lse", lse, AccumulatorOf(p.dtype),
                                            mb.maps.rows, p.q_heads, 1));
    return CheckLseOrder(lse, resources_.backend->lse_order());
  }

  // The part of a step that needs neither device nor other ranks.
  Status BuildState(const RankPlan& plan, internal::StepState* state) const {
    if (plan.rank != resources_.communicators->rank()) {
      return InvalidArgument("the plan is rank " + std::to_string(plan.rank) +
                             "'s, where this is rank " +
                             std::to_string(resources_.communicators->rank()));
    }
    if (plan.chunk_plan.has_value()) {
      return {StatusCode::kUnsupported,
              "a chunk plan has no micro-batches to execute"};
    }
    // The gather and the reduction take time as their bytes.
    const auto gather = static_cast<double>(SizeOf(options_.problem.dtype));
    const auto reduce = static_cast<double>(
        SizeOf(options_.grad_comm_dtype.value_or(options_.problem.dtype)));
    state->fence = fence_;
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
  FirstFailure failure_;
  std::shared_ptr<internal::Fence> fence_;
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
  impl_->Fail(status);
  SKRULL_EXEC_RETURN_IF_ERROR(impl_->failure());
  return Step(std::move(state));
}

Status Executor::Forward(const Step& step, int32_t micro_batch,
                         const ForwardTensors& tensors, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Poll());
  impl_->Fail(WithoutExceptions([&] {
    return impl_->Call(step, micro_batch, stream,
                       [&](const internal::MicroBatchState& mb) {
                         return impl_->Forward(mb, tensors, stream);
                       });
  }));
  return impl_->failure();
}

Status Executor::Backward(const Step& step, int32_t micro_batch,
                          const BackwardTensors& tensors, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Poll());
  impl_->Fail(WithoutExceptions([&] {
    return impl_->Call(step, micro_batch, stream,
                       [&](const internal::MicroBatchState& mb) {
                         return impl_->Backward(mb, tensors, stream);
                       });
  }));
  return impl_->failure();
}

Status Executor::Poll() { return impl_->Poll(); }

Status Executor::Wait(std::chrono::nanoseconds timeout) {
  return impl_->Wait(timeout);
}

void Executor::Abort(const Status& cause) noexcept { impl_->Fail(cause); }

}  // namespace skrull::exec
