// What each rank's work costs, in CPU seconds of the threads that do it: of use
// where ranks share cores, so that wall time says little of any one.
//
// A rank's threads are its own, its compute stream's and its comm stream's. The
// meter stands between the executor and what it calls, and reads the CPU clock
// of the stream's thread before and after each piece of work.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_METER_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_METER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/communicator.h"

namespace skrull::examples {

// CPU seconds that the calling thread has used.
double ThreadCpuSeconds();

// One rank's micro-batch, forward and backward, all layers.
struct RankSeconds {
  double local_attention = 0;
  double sharded_attention = 0;
  double exchange = 0;
  double rest = 0;  // everything else

  double compute() const { return local_attention + sharded_attention + rest; }
  // As the executor overlaps: OVERLAP_SCOPE_ATTENTION of the cost model.
  double overlapped() const;
};

// Not thread-safe beyond what streams order: read the sums when the streams'
// work is done.
class Meter {
 public:
  double local_attention = 0;    // written by the compute stream
  double sharded_attention = 0;  // the same
  double exchange = 0;           // written by the comm stream
  double stream = 0;             // all of the compute stream, by Mark()

  // Runs `enqueue`, and adds what the stream's thread spends on what it
  // enqueues to `sum`.
  template <class Enqueue>
  exec::Status Measure(exec::Stream stream_of_work, double* sum,
                       const Enqueue& enqueue) {
    SKRULL_EXEC_RETURN_IF_ERROR(Add(stream_of_work, sum, -1));
    SKRULL_EXEC_RETURN_IF_ERROR(enqueue());
    return Add(stream_of_work, sum, 1);
  }

  // Adds sign * the stream's clock to `sum`, when its turn comes.
  static exec::Status Add(exec::Stream stream_of_work, double* sum, int sign);
};

class MeteredBackend final : public exec::AttentionBackend {
 public:
  // Both outlive it. REQUIRES: the backend works in the stream's own thread.
  MeteredBackend(exec::AttentionBackend* backend, Meter* meter)
      : backend_(backend), meter_(meter) {}

  std::string_view name() const override { return backend_->name(); }
  exec::MemoryKind memory() const override { return backend_->memory(); }
  exec::Status Supports(const exec::AttentionProblem& problem,
                        exec::Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  exec::LseOrder lse_order() const override { return backend_->lse_order(); }
  int32_t kv_tail_rows() const override { return backend_->kv_tail_rows(); }
  exec::Result<int64_t> Prepare(const exec::AttentionProblem& problem,
                                const exec::SegmentBounds& bounds,
                                exec::Pass pass) override {
    return backend_->Prepare(problem, bounds, pass);
  }
  exec::Status Forward(const exec::AttentionForward& call,
                       exec::Workspace workspace, exec::Stream stream) override;
  exec::Status Backward(const exec::AttentionBackward& call,
                        exec::Workspace workspace,
                        exec::Stream stream) override;

 private:
  double* SumOf(const exec::SegmentBounds& bounds) const;

  exec::AttentionBackend* const backend_;
  Meter* const meter_;
};

class MeteredCommunicators final : public exec::CommunicatorSet {
 public:
  // Both outlive it.
  MeteredCommunicators(exec::CommunicatorSet* set, Meter* meter);
  ~MeteredCommunicators() override;

  int32_t rank() const override { return set_->rank(); }
  int32_t size() const override { return set_->size(); }
  exec::Status Announce(std::span<const Block> blocks) override {
    return set_->Announce(blocks);
  }
  exec::Result<exec::Communicator*> Find(Block block) override;
  exec::Status Poll() override { return set_->Poll(); }
  void Abort(const exec::Status& cause) noexcept override {
    set_->Abort(cause);
  }

 private:
  class Metered;

  exec::CommunicatorSet* const set_;
  Meter* const meter_;
  std::map<Block, std::unique_ptr<Metered>> communicators_;
};

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_METER_H_
