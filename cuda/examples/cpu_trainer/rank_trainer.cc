#include "skrull/cuda/examples/cpu_trainer/rank_trainer.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"

namespace skrull::examples {
namespace {

using exec::Result;
using exec::Status;

constexpr auto kStepLimit = std::chrono::minutes(10);

// One micro-batch's attention through the executor. The layers around it run on
// this thread, so each call waits for its results.
class ExecutorCalls final : public AttentionCalls {
 public:
  ExecutorCalls(exec::Executor* executor, const exec::Step* step,
                int32_t micro_batch, exec::Device* device, exec::Stream stream)
      : executor_(executor),
        step_(step),
        micro_batch_(micro_batch),
        device_(device),
        stream_(stream) {}

  Status Forward(const exec::ForwardTensors& tensors) override {
    SKRULL_EXEC_RETURN_IF_ERROR(
        executor_->Forward(*step_, micro_batch_, tensors, stream_));
    return device_->Synchronize(stream_);
  }
  Status Backward(const exec::BackwardTensors& tensors) override {
    SKRULL_EXEC_RETURN_IF_ERROR(
        executor_->Backward(*step_, micro_batch_, tensors, stream_));
    return device_->Synchronize(stream_);
  }

 private:
  exec::Executor* const executor_;
  const exec::Step* const step_;
  const int32_t micro_batch_;
  exec::Device* const device_;
  const exec::Stream stream_;
};

}  // namespace

class RankTrainer::Impl {
 public:
  Impl(const TrainerOptions& options, const RankLinks& links)
      : options_(options),
        links_(links),
        metered_(links.communicators, &meter_),
        weights_(options.model),
        gradients_(options.model) {
    weights_.Initialize(options.seed);
  }

  ~Impl() {
    executor_.reset();
    if (stream_.handle != nullptr) device_.DestroyStream(stream_);
  }

  Status Start() {
    // One thread: the stream's own, whose clock the meter reads.
    Result<std::unique_ptr<exec::AttentionBackend>> backend =
        exec::CreateCpuAttention(1);
    SKRULL_EXEC_RETURN_IF_ERROR(backend.status());
    backend_ = *std::move(backend);
    metered_backend_ =
        std::make_unique<MeteredBackend>(backend_.get(), &meter_);
    Result<exec::Stream> stream =
        device_.CreateStream(exec::StreamPriority::kNormal);
    SKRULL_EXEC_RETURN_IF_ERROR(stream.status());
    stream_ = *stream;
    const ModelConfig& model = options_.model;
    exec::ExecutorOptions executor;
    executor.problem = {.dtype = exec::DType::kFloat32,
                        .q_heads = model.q_heads,
                        .kv_heads = model.kv_heads,
                        .head_dim = model.head_dim,
                        .scale = 1 / std::sqrt(double(model.head_dim))};
    executor.exchange = options_.exchange;
    auto created =
        exec::Executor::Create(executor, {.device = &device_,
                                          .backend = metered_backend_.get(),
                                          .communicators = &metered_,
                                          .agreement = links_.agreement});
    SKRULL_EXEC_RETURN_IF_ERROR(created.status());
    executor_ = *std::move(created);
    return {};
  }

  Status Run(const RankPlan& plan, const Batch& batch, StepResult* result) {
    const Result<exec::Step> step = executor_->Prepare(plan);
    SKRULL_EXEC_RETURN_IF_ERROR(step.status());
    std::fill(gradients_.values().begin(), gradients_.values().end(), 0.0F);
    double loss = 0;
    // Every label weighs the same, wherever and in whatever micro-batch it is.
    const double scale =
        batch.label_count == 0 ? 0 : 1 / double(batch.label_count);
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      const MicroBatchRows rows = RowsOf(batch, plan.micro_batches[i]);
      ExecutorCalls calls(executor_.get(), &*step, static_cast<int32_t>(i),
                          &device_, stream_);
      meter_ = {};
      const double begin = ThreadCpuSeconds();
      SKRULL_EXEC_RETURN_IF_ERROR(meter_.Measure(stream_, &meter_.stream, [&] {
        return RunMicroBatch(options_.model, &weights_, rows, scale, &calls,
                             &gradients_, &loss);
      }));
      const double own = ThreadCpuSeconds() - begin;
      SKRULL_EXEC_RETURN_IF_ERROR(device_.Synchronize(stream_));
      const double attention =
          meter_.local_attention + meter_.sharded_attention;
      result->micro_batches.push_back(
          {.local_attention = meter_.local_attention,
           .sharded_attention = meter_.sharded_attention,
           .exchange = meter_.exchange,
           .rest = own + meter_.stream - attention});
    }
    SKRULL_EXEC_RETURN_IF_ERROR(executor_->Wait(kStepLimit));
    SKRULL_EXEC_RETURN_IF_ERROR(SumOverRanks(&loss));
    result->loss = loss * scale;
    for (size_t i = 0; i < weights_.values().size(); ++i) {
      weights_.values()[i] -=
          static_cast<float>(options_.learning_rate) * gradients_.values()[i];
    }
    return {};
  }

  const TrainerOptions options_;
  const RankLinks links_;
  Meter meter_;
  MeteredCommunicators metered_;
  exec::CpuDevice device_;
  std::unique_ptr<exec::AttentionBackend> backend_;
  std::unique_ptr<MeteredBackend> metered_backend_;
  exec::Stream stream_;
  std::unique_ptr<exec::Executor> executor_;
  Parameters weights_;
  Parameters gradients_;
  // The gradients and the loss of this rank, a part of their sum, the sum.
  exec::Buffer mine_, part_, sum_;

 private:
  // All-reduce of gradients and loss: reduce-scatter, then all-gather.
  Status SumOverRanks(double* loss) {
    const int32_t ranks = links_.communicators->size();
    if (ranks == 1) return {};
    const Block pool{.first_rank = 0, .degree = ranks};
    SKRULL_EXEC_RETURN_IF_ERROR(links_.communicators->Announce({&pool, 1}));
    const Result<exec::Communicator*> found = links_.communicators->Find(pool);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    exec::Communicator* const communicator = *found;
    Floats& values = gradients_.values();
    const auto count = static_cast<int64_t>(values.size());
    const int64_t part = (count + 1 + ranks - 1) / ranks;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    for (const auto& [buffer, bytes] :
         {std::pair(&mine_, part * ranks * kBytes),
          std::pair(&part_, part * kBytes),
          std::pair(&sum_, part * ranks * kBytes)}) {
      if (buffer->bytes() == bytes) continue;
      Result<exec::Buffer> made = communicator->Allocate(bytes);
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      *buffer = *std::move(made);
    }
    auto* const send = static_cast<float*>(mine_.data());
    std::fill_n(send, part * ranks, 0.0F);
    std::copy(values.begin(), values.end(), send);
    send[count] = static_cast<float>(*loss);
    SKRULL_EXEC_RETURN_IF_ERROR(communicator->ReduceScatter(
        send, part_.data(), part, exec::DType::kFloat32, stream_));
    SKRULL_EXEC_RETURN_IF_ERROR(communicator->AllGather(
        part_.data(), sum_.data(), part * kBytes, stream_));
    SKRULL_EXEC_RETURN_IF_ERROR(device_.Synchronize(stream_));
    SKRULL_EXEC_RETURN_IF_ERROR(links_.communicators->Poll());
    const auto* const sum = static_cast<const float*>(sum_.data());
    std::copy_n(sum, values.size(), values.begin());
    *loss = sum[count];
    return {};
  }
};

RankTrainer::RankTrainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RankTrainer::~RankTrainer() = default;

Result<std::unique_ptr<RankTrainer>> RankTrainer::Create(
    const TrainerOptions& options, const RankLinks& links) {
  auto impl = std::make_unique<Impl>(options, links);
  if (const Status status = impl->Start(); !status.ok()) {
    links.communicators->Abort(status);
    return status;
  }
  return std::unique_ptr<RankTrainer>(new RankTrainer(std::move(impl)));
}

Result<StepResult> RankTrainer::Step(const RankPlan& plan, const Batch& batch) {
  StepResult result;
  const Status status = impl_->Run(plan, batch, &result);
  if (!status.ok()) {
    if (status.code() != exec::StatusCode::kFailedPrecondition) Abort(status);
    return status;
  }
  return result;
}

void RankTrainer::Abort(const Status& cause) { impl_->executor_->Abort(cause); }

const Parameters& RankTrainer::gradients() const { return impl_->gradients_; }

const Parameters& RankTrainer::weights() const { return impl_->weights_; }

}  // namespace skrull::examples
