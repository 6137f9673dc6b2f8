#include "skrull/cuda/check/speed.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "skrull/cuda/list_upload.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/profile/attention_work.h"
#include "skrull/cuda/profile/device_data.h"
#include "skrull/cuda/profile/own_stream.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;
using exec::Tensor;
using profile::AttentionWork;
using profile::OwnStream;
using profile::Share;
using profile::Timing;

Status TimeInto(const profile::TimedWork& work,
                const profile::MeasureOptions& options, Timing* to) {
  const Result<Timing> timing =
      profile::Measure(work, profile::WallClock(), options);
  SKRULL_EXEC_RETURN_IF_ERROR(timing.status());
  *to = *timing;
  return {};
}

// K and V, rows of both in one buffer.
class KeyRows {
 public:
  Status Make(exec::Device* device, const exec::AttentionProblem& p,
              exec::DType dtype, int64_t rows) {
    const int64_t elements = rows * p.kv_heads * p.head_dim;
    Result<exec::Buffer> made =
        profile::RandomBuffer(device, dtype, 2 * elements);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    buffer_ = *std::move(made);
    k_ = exec::DenseTensor(buffer_.data(), dtype, rows, p.kv_heads, p.head_dim);
    v_ = k_;
    v_.data =
        static_cast<char*>(buffer_.data()) + elements * exec::SizeOf(dtype);
    return {};
  }
  const Tensor& k() const { return k_; }
  const Tensor& v() const { return v_; }

 private:
  exec::Buffer buffer_;
  Tensor k_, v_;
};

std::vector<exec::RowPair> Pairs(const KeyRows& dst, const KeyRows& src) {
  return {{dst.k(), src.k()}, {dst.v(), src.v()}};
}

Result<exec::MicroBatchMaps> MapsOf(int32_t tokens, int32_t ranks) {
  const std::vector<SequencePlacement> placements = {
      {.sequence = 0, .token_count = tokens, .first_rank = 0, .degree = ranks}};
  RankMicroBatch micro_batch;
  micro_batch.segments = RankSegments(placements, 0);
  micro_batch.row_count = micro_batch.segments[0].rows();
  micro_batch.token_count = tokens;
  return exec::BuildMaps(micro_batch, 0, 1);
}

// The lists of one block, on the device.
struct BlockLists {
  exec::BlockMaps maps;
  exec::RunList<exec::CopyRun> pack, unpack;
  exec::RunList<exec::FoldRun> fold;
  exec::Buffer memory;

  Status Send(exec::Device* device) {
    exec::internal::ListUpload upload;
    upload.AddRuns(maps.pack, &pack);
    upload.AddRuns(maps.unpack, &unpack);
    upload.AddRuns(maps.fold, &fold);
    return upload.Send(device, &memory);
  }
};

// The row kernels of one sequence, and plain copies of as many bytes.
class RowBench {
 public:
  explicit RowBench(exec::Device* device) : device_(device), stream_(device) {}

  Status Create(const exec::AttentionProblem& problem, int32_t tokens,
                int32_t ranks) {
    SKRULL_EXEC_RETURN_IF_ERROR(stream_.Create());
    Result<exec::MicroBatchMaps> maps = MapsOf(tokens, ranks);
    SKRULL_EXEC_RETURN_IF_ERROR(maps.status());
    keys_ = maps->sharded.bounds().total_kv;
    lists_.maps = std::move(maps->blocks[0]);
    SKRULL_EXEC_RETURN_IF_ERROR(lists_.Send(device_));
    row_bytes_ = 2 * int64_t{problem.kv_heads} * problem.head_dim *
                 exec::SizeOf(problem.dtype);
    // Copies need as many; for short sequences pad rows are more than prefixes.
    const int64_t longest = std::max(keys_, lists_.maps.gathered_rows());
    for (const auto& [to, count] :
         {std::pair(&rows_, int64_t{lists_.maps.rows}),
          std::pair(&slot_, int64_t{lists_.maps.slot_rows}),
          std::pair(&gathered_, lists_.maps.gathered_rows()),
          std::pair(&prefixes_, longest), std::pair(&spare_, longest)}) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          to->Make(device_, problem, problem.dtype, count));
    }
    return {};
  }

  Status Pack(const profile::MeasureOptions& options, RowSpeed::Kernel* to) {
    return Time(
        [this] {
          return device_->GatherRows(Pairs(slot_, rows_), lists_.pack,
                                     stream_.get());
        },
        2 * lists_.maps.rows, options, to);
  }
  Status Unpack(const profile::MeasureOptions& options, RowSpeed::Kernel* to) {
    return Time(
        [this] {
          return device_->GatherRows(Pairs(prefixes_, gathered_), lists_.unpack,
                                     stream_.get());
        },
        2 * keys_, options, to);
  }
  Status Fold(const profile::MeasureOptions& options, RowSpeed::Kernel* to) {
    return Time(
        [this] {
          return device_->FoldRows(Pairs(gathered_, prefixes_), lists_.fold,
                                   stream_.get());
        },
        keys_ + lists_.maps.gathered_rows(), options, to);
  }

 private:
  // `moved` rows are read or written; a copy of half of them does both.
  Status Time(const std::function<Status()>& kernel, int64_t moved,
              const profile::MeasureOptions& options, RowSpeed::Kernel* to) {
    to->bytes = moved * row_bytes_;
    const auto synchronize = [this] {
      return device_->Synchronize(stream_.get());
    };
    SKRULL_EXEC_RETURN_IF_ERROR(
        TimeInto({kernel, synchronize}, options, &to->kernel));
    const auto copy = [this, bytes = to->bytes / 2] {
      return device_->Copy(spare_.k().data, prefixes_.k().data, bytes,
                           stream_.get());
    };
    return TimeInto({copy, synchronize}, options, &to->copy);
  }

  exec::Device* const device_;
  OwnStream stream_;
  int64_t keys_ = 0;
  int64_t row_bytes_ = 0;  // of K and V
  BlockLists lists_;
  KeyRows rows_, slot_, gathered_;
  KeyRows prefixes_, spare_;
};

// Attention on one stream, copies of gathered rows on another.
class OverlapBench {
 public:
  explicit OverlapBench(exec::Device* device)
      : device_(device), compute_(device), comm_(device) {}

  Status Create(exec::AttentionBackend* backend,
                const exec::AttentionProblem& problem, int32_t tokens) {
    SKRULL_EXEC_RETURN_IF_ERROR(compute_.Create());
    SKRULL_EXEC_RETURN_IF_ERROR(comm_.Create(exec::StreamPriority::kHigh));
    const Share whole = {.tokens = tokens};
    Result<std::unique_ptr<AttentionWork>> work =
        AttentionWork::Create(device_, backend, problem, {&whole, 1});
    SKRULL_EXEC_RETURN_IF_ERROR(work.status());
    work_ = *std::move(work);
    Result<exec::MicroBatchMaps> maps = MapsOf(tokens, 2);
    SKRULL_EXEC_RETURN_IF_ERROR(maps.status());
    lists_.maps = std::move(maps->blocks[0]);
    SKRULL_EXEC_RETURN_IF_ERROR(lists_.Send(device_));
    SKRULL_EXEC_RETURN_IF_ERROR(gathered_.Make(device_, problem, problem.dtype,
                                               lists_.maps.gathered_rows()));
    return prefixes_.Make(device_, problem, problem.dtype,
                          maps->sharded.bounds().total_kv);
  }

  Status Attend() { return work_->Forward(compute_.get()); }
  Status Copy() {
    for (int64_t i = 0; i < copies_; ++i) {
      SKRULL_EXEC_RETURN_IF_ERROR(device_->GatherRows(
          Pairs(prefixes_, gathered_), lists_.unpack, comm_.get()));
    }
    return {};
  }
  Status Synchronize() {
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Synchronize(compute_.get()));
    return device_->Synchronize(comm_.get());
  }

  // Copies so often that it takes about `wanted`, where once takes `once`.
  void CopyForAbout(double wanted, double once) {
    if (!(once > 0)) return;
    copies_ = std::clamp(static_cast<int64_t>(std::llround(wanted / once)),
                         int64_t{1}, profile::kMaxCallsPerSample);
  }

 private:
  exec::Device* const device_;
  OwnStream compute_;
  OwnStream comm_;
  std::unique_ptr<AttentionWork> work_;
  BlockLists lists_;
  KeyRows gathered_, prefixes_;
  int64_t copies_ = 1;
};

}  // namespace

double AttentionSpeed::forward_teraflops() const {
  return forward.seconds > 0 ? 1e-12 * forward_flops / forward.seconds : 0;
}

double AttentionSpeed::backward_teraflops() const {
  return backward.seconds > 0 ? 2.5e-12 * forward_flops / backward.seconds : 0;
}

Result<AttentionSpeed> MeasureAttention(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem, std::span<const Share> shares,
    int32_t rank, const profile::MeasureOptions& options) {
  OwnStream stream(device);
  SKRULL_EXEC_RETURN_IF_ERROR(stream.Create());
  const Result<std::unique_ptr<AttentionWork>> work =
      AttentionWork::Create(device, backend, problem, shares, rank);
  SKRULL_EXEC_RETURN_IF_ERROR(work.status());
  AttentionSpeed speed;
  speed.forward_flops = (*work)->forward_flops();
  const auto synchronize = [&] { return device->Synchronize(stream.get()); };
  SKRULL_EXEC_RETURN_IF_ERROR(
      TimeInto({[&] { return (*work)->Forward(stream.get()); }, synchronize},
               options, &speed.forward));
  SKRULL_EXEC_RETURN_IF_ERROR(
      TimeInto({[&] { return (*work)->Backward(stream.get()); }, synchronize},
               options, &speed.backward));
  return speed;
}

double ShardEfficiency(const Timing& dense, const Timing& shard,
                       int32_t ranks) {
  return shard.seconds > 0 ? dense.seconds / ranks / shard.seconds : 0;
}

double RowSpeed::Kernel::gigabytes_per_second() const {
  return kernel.seconds > 0 ? 1e-9 * static_cast<double>(bytes) / kernel.seconds
                            : 0;
}

double RowSpeed::Kernel::share() const {
  return kernel.seconds > 0 ? copy.seconds / kernel.seconds : 0;
}

Result<RowSpeed> MeasureRows(exec::Device* device,
                             const exec::AttentionProblem& problem,
                             int32_t tokens, int32_t ranks,
                             const profile::MeasureOptions& options) {
  RowBench bench(device);
  SKRULL_EXEC_RETURN_IF_ERROR(bench.Create(problem, tokens, ranks));
  RowSpeed speed;
  SKRULL_EXEC_RETURN_IF_ERROR(bench.Pack(options, &speed.pack));
  SKRULL_EXEC_RETURN_IF_ERROR(bench.Unpack(options, &speed.unpack));
  SKRULL_EXEC_RETURN_IF_ERROR(bench.Fold(options, &speed.fold));
  return speed;
}

double OverlapSpeed::efficiency() const {
  const double shorter = std::min(attention_seconds, copy_seconds);
  return shorter > 0
             ? (attention_seconds + copy_seconds - both_seconds) / shorter
             : 0;
}

Result<OverlapSpeed> MeasureOverlap(exec::Device* device,
                                    exec::AttentionBackend* backend,
                                    const exec::AttentionProblem& problem,
                                    int32_t tokens,
                                    const profile::MeasureOptions& options) {
  OverlapBench bench(device);
  SKRULL_EXEC_RETURN_IF_ERROR(bench.Create(backend, problem, tokens));
  const auto attend = [&] { return bench.Attend(); };
  const auto copy = [&] { return bench.Copy(); };
  const auto both = [&] {
    const Status copied = bench.Copy();
    return copied.ok() ? bench.Attend() : copied;
  };
  const auto synchronize = [&] { return bench.Synchronize(); };
  Timing attending, copying, together;
  SKRULL_EXEC_RETURN_IF_ERROR(
      TimeInto({attend, synchronize}, options, &attending));
  SKRULL_EXEC_RETURN_IF_ERROR(TimeInto({copy, synchronize}, options, &copying));
  bench.CopyForAbout(attending.seconds, copying.seconds);
  SKRULL_EXEC_RETURN_IF_ERROR(TimeInto({copy, synchronize}, options, &copying));
  SKRULL_EXEC_RETURN_IF_ERROR(
      TimeInto({both, synchronize}, options, &together));
  return OverlapSpeed{.attention_seconds = attending.seconds,
                      .copy_seconds = copying.seconds,
                      .both_seconds = together.seconds};
}

}  // namespace skrull::check
