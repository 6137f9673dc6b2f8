#include "skrull/cuda/examples/cpu_trainer/meter.h"

#include <time.h>

#include <algorithm>

#include "skrull/cuda/host_queue.h"

namespace skrull::examples {

using exec::Result;
using exec::Status;
using exec::Stream;

double ThreadCpuSeconds() {
  timespec now{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

double RankSeconds::overlapped() const {
  return rest + std::max(exchange, local_attention) + sharded_attention;
}

Status Meter::Add(Stream stream_of_work, double* sum, int sign) {
  return exec::EnqueueOnHost(stream_of_work, [=](const Status&) -> Status {
    *sum += sign * ThreadCpuSeconds();
    return {};
  });
}

// A sharded call has more keys than queries.
double* MeteredBackend::SumOf(const exec::SegmentBounds& bounds) const {
  return bounds.total_kv == bounds.total_q ? &meter_->local_attention
                                           : &meter_->sharded_attention;
}

Status MeteredBackend::Forward(const exec::AttentionForward& call,
                               exec::Workspace workspace, Stream stream) {
  return meter_->Measure(stream, SumOf(call.segments.bounds), [&] {
    return backend_->Forward(call, workspace, stream);
  });
}

Status MeteredBackend::Backward(const exec::AttentionBackward& call,
                                exec::Workspace workspace, Stream stream) {
  return meter_->Measure(stream, SumOf(call.segments.bounds), [&] {
    return backend_->Backward(call, workspace, stream);
  });
}

// Waiting for other ranks takes no CPU time, so that what it measures is the
// copying alone.
class MeteredCommunicators::Metered final : public exec::Communicator {
 public:
  Metered(exec::Communicator* communicator, Meter* meter)
      : communicator_(communicator), meter_(meter) {}

  int32_t rank() const override { return communicator_->rank(); }
  int32_t size() const override { return communicator_->size(); }
  Result<exec::Buffer> Allocate(int64_t bytes) override {
    return communicator_->Allocate(bytes);
  }
  Status AllGather(const void* send, void* recv, int64_t bytes,
                   Stream stream) override {
    return meter_->Measure(stream, &meter_->exchange, [&] {
      return communicator_->AllGather(send, recv, bytes, stream);
    });
  }
  Status ReduceScatter(const void* send, void* recv, int64_t count,
                       exec::DType dtype, Stream stream) override {
    return meter_->Measure(stream, &meter_->exchange, [&] {
      return communicator_->ReduceScatter(send, recv, count, dtype, stream);
    });
  }
  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return meter_->Measure(stream, &meter_->exchange, [&] {
      return communicator_->Shift(send, recv, bytes, stream);
    });
  }
  Status Poll() override { return communicator_->Poll(); }
  void Abort(const Status& cause) noexcept override {
    communicator_->Abort(cause);
  }

 private:
  exec::Communicator* const communicator_;
  Meter* const meter_;
};

MeteredCommunicators::MeteredCommunicators(exec::CommunicatorSet* set,
                                           Meter* meter)
    : set_(set), meter_(meter) {}

MeteredCommunicators::~MeteredCommunicators() = default;

Result<exec::Communicator*> MeteredCommunicators::Find(Block block) {
  const Result<exec::Communicator*> found = set_->Find(block);
  SKRULL_EXEC_RETURN_IF_ERROR(found.status());
  std::unique_ptr<Metered>& mine = communicators_[block];
  if (mine == nullptr) mine = std::make_unique<Metered>(*found, meter_);
  return static_cast<exec::Communicator*>(mine.get());
}

}  // namespace skrull::examples
