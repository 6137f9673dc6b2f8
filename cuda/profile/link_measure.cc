#include "skrull/cuda/profile/link_measure.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/own_stream.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;

// Calls of one sample: the same on every rank, so it cannot follow from what
// each of them measures. A sample moves 64 MiB, which takes 6 milliseconds at
// 10 GB/s; at small sizes the latency counts, and 32 calls at 5 to 50
// microseconds make a millisecond or so.
int64_t CallsOf(int64_t bytes) {
  constexpr int64_t kSampleBytes = int64_t{64} << 20;
  constexpr int64_t kMostCalls = 32;
  return std::clamp(kSampleBytes / bytes, int64_t{1}, kMostCalls);
}

// One rank's part in one case.
class RankCase {
 public:
  RankCase(exec::Device* device, exec::Communicator* communicator,
           exec::Stream stream, const LinkCases& cases)
      : device_(device),
        communicator_(communicator),
        stream_(stream),
        dtype_(cases.dtype) {}

  Status Run(int64_t bytes, const Clock& clock, const MeasureOptions& options,
             LinkTiming* timing) {
    const int64_t ranks = communicator_->size();
    const int64_t unit = ranks * exec::SizeOf(dtype_);
    const int64_t count = (bytes + unit - 1) / unit;  // of each rank
    const int64_t part = count * exec::SizeOf(dtype_);
    Result<exec::Buffer> small = communicator_->Allocate(part);
    SKRULL_EXEC_RETURN_IF_ERROR(small.status());
    Result<exec::Buffer> large = communicator_->Allocate(part * ranks);
    SKRULL_EXEC_RETURN_IF_ERROR(large.status());
    for (const exec::Buffer* buffer : {&*small, &*large}) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          device_->Zero(buffer->data(), buffer->bytes(), stream_));
    }
    timing->degree = communicator_->size();
    timing->bytes = bytes;
    const int64_t calls = CallsOf(bytes);
    const auto measure = [&](auto enqueue) {
      return Measure(
          {.enqueue = enqueue, .synchronize = [&] { return Synchronize(); }},
          clock, options, calls);
    };
    const Result<Timing> gather = measure([&] {
      return communicator_->AllGather(small->data(), large->data(), part,
                                      stream_);
    });
    SKRULL_EXEC_RETURN_IF_ERROR(gather.status());
    const Result<Timing> reduce = measure([&] {
      return communicator_->ReduceScatter(large->data(), small->data(), count,
                                          dtype_, stream_);
    });
    SKRULL_EXEC_RETURN_IF_ERROR(reduce.status());
    timing->gather = *gather;
    timing->reduce = *reduce;
    return {};
  }

 private:
  Status Synchronize() {
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Synchronize(stream_));
    return communicator_->Poll();
  }

  exec::Device* const device_;
  exec::Communicator* const communicator_;
  const exec::Stream stream_;
  const exec::DType dtype_;
};

// Everything one rank does. All ranks go through the same cases; those outside
// a block only announce it.
Status RunRank(exec::Device* device, exec::CommunicatorSet* communicators,
               const LinkCases& cases, const Clock& clock,
               const MeasureOptions& options,
               std::vector<LinkTiming>* timings) {
  OwnStream stream(device);
  SKRULL_EXEC_RETURN_IF_ERROR(stream.Create(exec::StreamPriority::kHigh));
  for (const int32_t degree : cases.degrees) {
    const Block block = {.first_rank = 0, .degree = degree};
    SKRULL_EXEC_RETURN_IF_ERROR(communicators->Announce({&block, 1}));
    if (communicators->rank() >= degree) continue;
    const Result<exec::Communicator*> found = communicators->Find(block);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    RankCase rank_case(device, *found, stream.get(), cases);
    for (const int64_t bytes : cases.bytes) {
      LinkTiming timing;
      SKRULL_EXEC_RETURN_IF_ERROR(
          rank_case.Run(bytes, clock, options, &timing));
      timings->push_back(timing);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<LinkTiming>> MeasureLinks(RankPool* pool,
                                             const LinkCases& cases,
                                             const Clock& clock,
                                             bool divide_by_ranks,
                                             const MeasureOptions& options) {
  for (const int32_t degree : cases.degrees) {
    if (degree < 2 || degree > pool->size()) {
      return exec::InvalidArgument("a block of " + std::to_string(degree) +
                                   " ranks, in a pool of " +
                                   std::to_string(pool->size()));
    }
  }
  for (const int64_t bytes : cases.bytes) {
    if (bytes < 1) {
      return exec::InvalidArgument("a collective of " + std::to_string(bytes) +
                                   " bytes");
    }
  }
  const auto ranks = static_cast<size_t>(pool->size());
  std::vector<std::vector<LinkTiming>> timings(ranks);
  std::vector<Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      exec::CommunicatorSet* const set =
          pool->communicators(static_cast<int32_t>(r));
      statuses[r] = RunRank(pool->device(static_cast<int32_t>(r)), set, cases,
                            clock, options, &timings[r]);
      if (!statuses[r].ok()) set->Abort(statuses[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  SKRULL_EXEC_RETURN_IF_ERROR(CauseOf(statuses));
  if (divide_by_ranks) {
    for (LinkTiming& timing : timings[0]) {
      timing.gather.seconds /= timing.degree;
      timing.reduce.seconds /= timing.degree;
    }
  }
  return std::move(timings[0]);
}

double CollectiveSeconds(const LinkTiming& timing,
                         double collectives_per_layer) {
  return ((collectives_per_layer - 1) * timing.gather.seconds +
          timing.reduce.seconds) /
         collectives_per_layer;
}

LinearFit FitLinks(std::span<const LinkTiming> timings,
                   double collectives_per_layer, double max_mean_error) {
  std::vector<FitPoint> points;
  for (const LinkTiming& timing : timings) {
    FitPoint point = {.label = std::to_string(timing.bytes) + " bytes over " +
                               std::to_string(timing.degree) + " ranks",
                      .y = CollectiveSeconds(timing, collectives_per_layer)};
    point.x[kSecondsPerCollective] = 1;
    point.x[kSecondsPerByte] = static_cast<double>(timing.bytes);
    points.push_back(point);
  }
  return Fit("collectives",
             {{.name = "seconds_per_collective", .may_be_zero = true},
              {.name = "seconds_per_byte"}},
             points, max_mean_error);
}

std::vector<LinkPoint> LinkTable(std::span<const LinkTiming> timings,
                                 double collectives_per_layer) {
  std::map<int64_t, std::pair<double, int>> sums;
  for (const LinkTiming& timing : timings) {
    auto& [seconds, count] = sums[timing.bytes];
    seconds += CollectiveSeconds(timing, collectives_per_layer);
    ++count;
  }
  std::vector<LinkPoint> table;
  for (const auto& [bytes, sum] : sums) {
    table.push_back({.bytes = bytes, .seconds = sum.first / sum.second});
  }
  if (table.size() >= 2) {
    LinkPoint& last = table.back();
    last.seconds = std::max(last.seconds, table[table.size() - 2].seconds);
  }
  return table;
}

}  // namespace skrull::profile
