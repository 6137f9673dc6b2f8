// What is behind the handles of skrull_exec.h. Each owns its share of what it
// was made from, so that handles can be destroyed in any order.
#ifndef SKRULL_CUDA_C_API_HANDLES_H_
#define SKRULL_CUDA_C_API_HANDLES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/c_api/skrull_exec_chunks.h"
#include "skrull/cuda/chunk_executor.h"
#include "skrull/cuda/chunk_program.h"
#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/step.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::exec::c_api {

// A device and the streams that callers made on it. Thread-safe.
class DeviceState {
 public:
  explicit DeviceState(std::unique_ptr<Device> device)
      : device_(std::move(device)) {}
  ~DeviceState();

  Device* device() const { return device_.get(); }

  Result<Stream> CreateStream();
  Status DestroyStream(Stream stream);
  // OK if calls may use the stream. On CUDA any handle is the caller's affair.
  Status CheckStream(Stream stream);

 private:
  const std::unique_ptr<Device> device_;
  std::mutex mutex_;
  std::set<void*> streams_;  // protected by mutex_
};

// One rank's communicators, whatever kind they are.
class CommState {
 public:
  virtual ~CommState() = default;
  virtual const char* name() const = 0;
  virtual MemoryKind memory() const = 0;  // of the rows that it exchanges
  virtual CommunicatorSet* communicators() = 0;
  virtual StepAgreement* agreement() = 0;
  // Another rank of the same pool in this process. Errors: INVALID_ARGUMENT if
  // there is no such rank left.
  virtual Result<std::shared_ptr<CommState>> Join(int32_t rank, int32_t ranks,
                                                  const char* name) const = 0;
};

// What an executor of any kind was made from. The members stand in the order
// that their destructors need: last first.
struct ExecutorParts {
  std::shared_ptr<DeviceState> device;
  std::shared_ptr<AttentionBackend> backend;
  std::shared_ptr<CommState> comm;
  std::unique_ptr<StepAgreement> own_agreement;  // null: comm's

  ExecutorResources resources() const {
    return {.device = device->device(),
            .backend = backend.get(),
            .communicators = comm->communicators(),
            .agreement = own_agreement != nullptr ? own_agreement.get()
                                                  : comm->agreement()};
  }
};

}  // namespace skrull::exec::c_api

// Here, too, members stand in the order that their destructors need.

struct skrull_device {
  std::shared_ptr<skrull::exec::c_api::DeviceState> state;
};

struct skrull_backend {
  std::shared_ptr<skrull::exec::AttentionBackend> backend;
};

struct skrull_comm {
  std::shared_ptr<skrull::exec::c_api::CommState> state;
};

struct skrull_plan {
  skrull::RankPlan plan;
  std::vector<skrull::exec::MicroBatchMaps> maps;  // one a micro-batch
};

struct skrull_executor {
  skrull::exec::c_api::ExecutorParts parts;
  std::unique_ptr<skrull::exec::Executor> executor;
};

struct skrull_step {
  std::shared_ptr<skrull::exec::c_api::DeviceState> device;
  skrull::exec::Step step;
};

struct skrull_chunk_plan {
  skrull::RankPlan plan;
  // As the executor makes it, but for the rows behind keys that its backend may
  // want.
  skrull::exec::ChunkProgram program;
};

struct skrull_chunk_executor {
  skrull::exec::c_api::ExecutorParts parts;
  std::unique_ptr<skrull::exec::ChunkExecutor> executor;
};

struct skrull_chunk_step {
  std::shared_ptr<skrull::exec::c_api::DeviceState> device;
  skrull::exec::ChunkStep step;
};

#endif  // SKRULL_CUDA_C_API_HANDLES_H_
