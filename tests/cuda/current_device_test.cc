// Backends are called with the executor's device as the thread's current one.
#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/cuda/forwarding_device.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

thread_local const Device* current_device = nullptr;

class SelectedDevice final : public ForwardingDevice {
 public:
  SelectedDevice() : ForwardingDevice(&cpu_) {}

  Status AsCurrent(const std::function<Status()>& call) override {
    const Device* const before = std::exchange(current_device, this);
    Status status = call();
    current_device = before;
    return status;
  }

 private:
  CpuDevice cpu_{{.poison_buffers = true}};
};

// Fails where another device is current, and counts its calls.
class DemandingBackend final : public AttentionBackend {
 public:
  DemandingBackend(AttentionBackend* backend, const Device* device)
      : backend_(backend), device_(device) {}

  std::string_view name() const override { return backend_->name(); }
  MemoryKind memory() const override { return backend_->memory(); }
  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  LseOrder lse_order() const override { return backend_->lse_order(); }
  int32_t kv_tail_rows() const override { return backend_->kv_tail_rows(); }
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Look(&prepared_));
    return backend_->Prepare(problem, bounds, pass);
  }
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Look(&forward_));
    return backend_->Forward(call, workspace, stream);
  }
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Look(&backward_));
    return backend_->Backward(call, workspace, stream);
  }

  // Was each of them called?
  bool has_all() const {
    return prepared_ > 0 && forward_ > 0 && backward_ > 0;
  }

 private:
  Status Look(int* count) const {
    ++*count;
    if (current_device == device_) return {};
    return {StatusCode::kInternal, "another device is current"};
  }

  AttentionBackend* const backend_;
  const Device* const device_;
  int prepared_ = 0;
  int forward_ = 0;
  int backward_ = 0;
};

// Two ranks, each with such a device and backend.
class DemandingRanks {
 public:
  RunOptions options() {
    RunOptions options;
    options.executor.problem = {.dtype = DType::kFloat64,
                                .q_heads = 2,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .scale = 0.5};
    options.new_device = [](int32_t) {
      return std::make_unique<SelectedDevice>();
    };
    options.change_parts = [this](int32_t rank, RankParts* parts) {
      auto& mine = backends_[static_cast<size_t>(rank)];
      mine = std::make_unique<DemandingBackend>(parts->backend, parts->device);
      parts->backend = mine.get();
    };
    return options;
  }

  void CheckCalls(const std::vector<Status>& statuses) const {
    for (const Status& status : statuses) CHECK(status.ToString() == "OK");
    for (const auto& backend : backends_) CHECK(backend->has_all());
  }

 private:
  std::vector<std::unique_ptr<DemandingBackend>> backends_{2};
};

}  // namespace

TEST_CASE("Executor: its device is current in a backend's calls",
          "[executor]") {
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{0, 9, 0, 1}, {1, 20, 0, 2}}}};
  for (const Exchange exchange : {Exchange::kAllGather, Exchange::kRing}) {
    DemandingRanks ranks;
    RunOptions options = ranks.options();
    options.executor.exchange = exchange;
    std::mt19937_64 random(1);
    const auto data = RandomData(&random, options.executor.problem, plan);
    ranks.CheckCalls(RunPlan(plan, data, options).statuses);
  }
}

TEST_CASE("Chunks: their device is current in a backend's calls", "[chunks]") {
  TestChunks chunks(1, 2, 1);
  chunks.AddSplit(0, {20, 7});
  DemandingRanks ranks;
  const RunOptions options = ranks.options();
  std::mt19937_64 random(1);
  const auto data = RandomData(&random, options.executor.problem, chunks);
  ranks.CheckCalls(RunChunks(chunks, data, options).statuses);
}

}  // namespace skrull::exec::testing
