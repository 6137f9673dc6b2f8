// What the executor and communicators need of a machine: memory, streams,
// events, copies, sums, and the four row kernels around attention.
//
// Streams are ordered queues, as CUDA's are; everything that takes one is
// asynchronous and ordered on it. An asynchronous failure is the device's: it
// is sticky, later work is skipped, events still complete, and Poll() tells.
//
// Thread-safety: all functions may be called from any thread; work enqueued on
// one stream by several threads is in no particular order.
#ifndef SKRULL_CUDA_DEVICE_H_
#define SKRULL_CUDA_DEVICE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec {

// Opaque: a cudaStream_t, or a HostQueue* (host_queue.h) where memory() is
// kHost. Not owned.
struct Stream {
  void* handle = nullptr;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// Opaque, made by its Device.
struct Event {
  void* handle = nullptr;
};

// Memory with its release. Moves, never copies. The work that uses it must be
// complete when it is destroyed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr && release_) release_(data_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void(void*)> release_;
};

enum class MemoryKind : int32_t { kHost = 0, kCuda = 1 };
enum class StreamPriority : int32_t { kNormal = 0, kHigh = 1 };

// One tensor of a row kernel. Heads and dim of both are the same, and may
// differ from those of other pairs; types may differ, and values are rounded to
// the nearest (ties to even).
struct RowPair {
  Tensor dst;
  Tensor src;  // only read
};

// The most addends of one sum: of the ranks of a block that share a device.
inline constexpr int kMaxAddends = 64;

// The most pairs of one launch (K and V; or q, dO, O and LSE).
inline constexpr int kMaxRowPairs = 4;

// Two results of attention of the same queries over disjoint keys, merged into
// one: lse = log(e^lse + e^lse_part), o = o e^(lse_old - lse) + o_part
// e^(lse_part - lse). `o` and both LSE have the accumulator's type; an LSE of
// -inf says that there were no keys, and its O is not read.
struct MergeRows {
  Tensor o, lse;            // rows `dst` of the runs, read and written
  Tensor o_part, lse_part;  // rows `src`, only read
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  virtual MemoryKind memory() const = 0;

  // Returns what `call` returns, which the calling thread makes with this
  // device as its current one: libraries of CUDA work on that, whatever stream
  // they are given.
  virtual Status AsCurrent(const std::function<Status()>& call) = 0;

  // `bytes` >= 0, aligned to 256 bytes; the contents are undefined. The device
  // must outlive the buffer. Errors: OUT_OF_MEMORY.
  virtual Result<Buffer> Allocate(int64_t bytes) = 0;

  virtual Result<Stream> CreateStream(StreamPriority priority) = 0;
  // Waits for the work on it.
  virtual void DestroyStream(Stream stream) noexcept = 0;
  virtual Result<Event> CreateEvent() = 0;
  // REQUIRES: no work waits for the event any more.
  virtual void DestroyEvent(Event event) noexcept = 0;

  // The event completes when what was enqueued on the stream before completes
  // (or was skipped). Recording again replaces the earlier record for later
  // waits; earlier waits keep theirs.
  virtual Status Record(Event event, Stream stream) = 0;
  // Work enqueued on the stream from now on starts after the event's latest
  // record; at once if there is none. Does not block the host.
  virtual Status Wait(Stream stream, Event event) = 0;
  // Has the latest record completed? True if there is none. Does not block.
  virtual Result<bool> Query(Event event) = 0;
  // Blocks the host until then. Returns what Poll() does.
  virtual Status HostWait(Event event) = 0;
  // Blocks the host until the stream has run empty. Returns what Poll() does.
  virtual Status Synchronize(Stream stream) = 0;
  // The first asynchronous failure, or OK. Does not block.
  virtual Status Poll() = 0;

  // Copies host memory to the device's before it returns; in no order with
  // work on streams, so `dst` must not be in use.
  virtual Status Upload(void* dst, const void* src, int64_t bytes) = 0;
  // Sets bytes to zero.
  virtual Status Zero(void* dst, int64_t bytes, Stream stream) = 0;
  // Copies within the device's memory. They do not overlap.
  virtual Status Copy(void* dst, const void* src, int64_t bytes,
                      Stream stream) = 0;
  // dst[i] := the sum of addends[k][i] for i < count, from zero on, over k
  // ascending, in the accumulator's type and rounded once: SumRanks of
  // cpu/rank_sum.h. 1 .. kMaxAddends of them, which dst does not overlap.
  virtual Status Sum(void* dst, std::span<const void* const> addends,
                     int64_t count, DType dtype, Stream stream) = 0;

  // dst rows := src rows, for each of 1 .. kMaxRowPairs pairs. Rows that no run
  // names keep their contents. Also converts (runs of equal rows).
  virtual Status GatherRows(std::span<const RowPair> pairs,
                            RunList<CopyRun> runs, Stream stream) = 0;
  // dst rows += src rows; dst has the accumulator's type. No dst row twice.
  virtual Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                         Stream stream) = 0;
  // Rows of dst := sums of two rows of src, added in the accumulator's type.
  virtual Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                          Stream stream) = 0;
  virtual Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                                Stream stream) = 0;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_DEVICE_H_
