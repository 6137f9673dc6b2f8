#include "skrull/cuda/cpu/cpu_attention.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "skrull/cuda/attention_check.h"
#include "skrull/cuda/cpu/blocked_attention.h"
#include "skrull/cuda/cpu/worker_pool.h"
#include "skrull/cuda/host_queue.h"

namespace skrull::exec {
namespace {

class CpuAttention final : public AttentionBackend {
 public:
  explicit CpuAttention(int threads) : pool_(threads) {}

  std::string_view name() const override { return "cpu"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  LseOrder lse_order() const override { return LseOrder::kAny; }
  int32_t kv_tail_rows() const override { return 0; }

  Status Supports(const AttentionProblem& problem, Pass) const override {
    return CheckProblem(problem);
  }

  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(problem));
    return pass == Pass::kForward ? 0 : DeltaBytes(problem, bounds);
  }

  Status Forward(const AttentionForward& call, Workspace,
                 Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(call.problem));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckForward(call));
    return EnqueueOnHost(stream, [this, call](const Status& device) -> Status {
      if (device.ok()) BlockedForward(call, &pool_);
      return {};
    });
  }

  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(call.problem));
    SKRULL_EXEC_RETURN_IF_ERROR(CheckBackward(call));
    const int64_t bytes = DeltaBytes(call.problem, call.segments.bounds);
    if (workspace.data == nullptr || workspace.bytes < bytes) {
      return InvalidArgument(
          "a workspace of " + std::to_string(workspace.bytes) +
          " bytes, where " + std::to_string(bytes) + " are needed");
    }
    return EnqueueOnHost(
        stream,
        [this, call, delta = workspace.data](const Status& device) -> Status {
          if (device.ok()) BlockedBackward(call, delta, &pool_);
          return {};
        });
  }

 private:
  static int64_t DeltaBytes(const AttentionProblem& problem,
                            const SegmentBounds& bounds) {
    return bounds.total_q * problem.q_heads *
           SizeOf(AccumulatorOf(problem.dtype));
  }

  WorkerPool pool_;
};

}  // namespace

Result<std::unique_ptr<AttentionBackend>> CreateCpuAttention(int threads) {
  if (threads < 0) {
    return InvalidArgument("threads is " + std::to_string(threads));
  }
  if (threads == 0) {
    threads =
        static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  try {
    return std::unique_ptr<AttentionBackend>(new CpuAttention(threads));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for the cpu backend");
  } catch (const std::system_error& e) {
    return Status(StatusCode::kOutOfMemory,
                  std::string("no threads for the cpu backend: ") + e.what());
  }
}

}  // namespace skrull::exec
