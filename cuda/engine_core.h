// What all schedules need: the comm stream, memory of blocks and calls, and
// attention calls. For the executor alone.
#ifndef SKRULL_CUDA_ENGINE_CORE_H_
#define SKRULL_CUDA_ENGINE_CORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "skrull/cuda/executor.h"
#include "skrull/cuda/step_state.h"

namespace skrull::exec::internal {

// Tensors cut from one piece of memory, 256-byte aligned. Over no memory it
// only counts, so that sizes and addresses come from the same code.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  Tensor Take(DType dtype, int64_t rows, int32_t heads, int32_t dim) {
    char* data = base_ == nullptr ? nullptr : base_ + used_;
    const int64_t bytes = rows * heads * dim * SizeOf(dtype);
    used_ += (bytes + 255) / 256 * 256;
    return DenseTensor(data, dtype, rows, heads, dim);
  }
  int64_t used() const { return used_; }

 private:
  char* const base_;
  int64_t used_ = 0;
};

// One rank's end of a block: its communicator, and memory from it. The bytes
// are the same on every rank of the block.
struct Channel {
  Communicator* communicator = nullptr;
  std::vector<Buffer> buffers;
};

// Not thread-safe.
class EngineCore {
 public:
  // Errors: those of the device.
  static Result<std::unique_ptr<EngineCore>> Create(
      const ExecutorOptions& options, const ExecutorResources& resources,
      std::shared_ptr<Fence> fence);
  // Waits for the comm stream.
  ~EngineCore();

  Device* device() const { return resources_.device; }
  AttentionBackend* backend() const { return resources_.backend; }
  const AttentionProblem& problem() const { return options_.problem; }
  DType dtype() const { return problem().dtype; }
  DType accumulator() const { return AccumulatorOf(dtype()); }
  DType grad_comm_dtype() const;

  // Elements of one row of K and V together.
  int64_t kv_row_elements() const {
    return 2 * int64_t{problem().kv_heads} * problem().head_dim;
  }
  // K (half 0) or V (half 1) of rows [count, 2, kv_heads, head_dim].
  Tensor KvHalf(void* rows, DType dtype, int64_t count, int half) const;

  // Streams.
  Stream comm() const { return comm_; }
  // What is enqueued on the comm stream from now on follows what is on `stream`
  // now.
  Status CommFollows(Stream stream);

  // Memory. `bytes_of` gives the sizes of a block's buffers, for its maps in
  // one micro-batch; the largest of the step count.
  using ChannelBytes = std::function<std::vector<int64_t>(const BlockMaps&)>;
  Status ReserveChannels(const StepState& step, const ChannelBytes& bytes_of);
  // The same for one block. Collective over it.
  Status ReserveChannel(Block block, const std::vector<int64_t>& bytes);
  Status ReserveScratch(int64_t bytes);
  Channel& channel(const BlockMaps& maps) { return channel(maps.block); }
  Channel& channel(Block block) { return channels_.at(block); }
  void* scratch() const { return scratch_.data(); }

  // Blocks the host until the work of earlier calls is done.
  Status Quiesce();

  // Attention. Reserve lets the backend prepare for the segments, in both
  // passes, and keeps the largest workspace. Empty lists of segments are no
  // call.
  Status ReserveAttention(const Segments& segments);
  Status AttendForward(const Segments& segments, const ForwardTensors& t,
                       Stream stream);
  Status AttendBackward(const Segments& segments, const BackwardTensors& t,
                        Stream stream);

 private:
  EngineCore(const ExecutorOptions& options, const ExecutorResources& resources,
             std::shared_ptr<Fence> fence)
      : options_(options), resources_(resources), fence_(std::move(fence)) {}

  const ExecutorOptions options_;
  const ExecutorResources resources_;
  const std::shared_ptr<Fence> fence_;
  Stream comm_;
  Event ready_;
  Buffer workspace_;
  Buffer scratch_;
  std::map<Block, Channel> channels_;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_ENGINE_CORE_H_
