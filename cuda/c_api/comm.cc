// Communicators of skrull_exec.h.
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/c_api/plan_arrays.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/gathered_rendezvous.h"
#include "skrull/cuda/host/host_pool.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/nccl_library.h"
#include "skrull/cuda/nccl/nccl_pool.h"

namespace skrull::exec::c_api {
namespace {

using std::chrono::nanoseconds;
using CommOr = Result<std::shared_ptr<CommState>>;

constexpr nanoseconds kDefaultLimit = std::chrono::seconds(60);

// A pool of threads, and which of its ranks have an owner.
struct SharedPool {
  SharedPool(int32_t count, const InProcessOptions& options)
      : pool(count, options), ranks(count), taken(static_cast<size_t>(count)) {}

  // True if the rank had no owner.
  bool Take(int32_t rank) {
    const std::lock_guard lock(mutex);
    const bool was_taken = taken[static_cast<size_t>(rank)];
    taken[static_cast<size_t>(rank)] = true;
    return !was_taken;
  }

  InProcessPool pool;
  const int32_t ranks;
  std::mutex mutex;
  std::vector<bool> taken;  // protected by mutex
};

class InProcessComm final : public CommState {
 public:
  InProcessComm(std::shared_ptr<SharedPool> pool, int32_t rank)
      : pool_(std::move(pool)), rank_(rank) {}

  const char* name() const override { return "in_process"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  CommunicatorSet* communicators() override {
    return pool_->pool.communicators(rank_);
  }
  StepAgreement* agreement() override { return pool_->pool.agreement(rank_); }

  CommOr Join(int32_t rank, int32_t ranks, const char* name) const override {
    if (std::string(name) != "in_process" || ranks != pool_->ranks) {
      return InvalidArgument("comm options: peer is in_process and of " +
                             std::to_string(pool_->ranks) + " ranks");
    }
    return Make(pool_, rank);
  }

  static CommOr Make(std::shared_ptr<SharedPool> pool, int32_t rank) {
    if (!pool->Take(rank)) {
      return InvalidArgument("comm options: rank " + std::to_string(rank) +
                             " of the pool is taken");
    }
    return std::shared_ptr<CommState>(
        std::make_shared<InProcessComm>(std::move(pool), rank));
  }

 private:
  const std::shared_ptr<SharedPool> pool_;
  const int32_t rank_;
};

// Ranks that are processes: nobody joins their pool as a peer.
class ProcessComm : public CommState {
 public:
  CommOr Join(int32_t, int32_t, const char*) const final {
    return InvalidArgument("comm options: peer is a " + std::string(name()) +
                           " communicator");
  }
};

class HostComm final : public ProcessComm {
 public:
  explicit HostComm(std::unique_ptr<HostPool> pool) : pool_(std::move(pool)) {}

  const char* name() const override { return "host"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  CommunicatorSet* communicators() override { return pool_->communicators(); }
  StepAgreement* agreement() override { return pool_->agreement(); }

 private:
  const std::unique_ptr<HostPool> pool_;
};

class NcclComm final : public ProcessComm {
 public:
  NcclComm(std::unique_ptr<HostPool> control, std::unique_ptr<NcclPool> pool)
      : control_(std::move(control)), pool_(std::move(pool)) {}

  const char* name() const override { return "nccl"; }
  MemoryKind memory() const override { return MemoryKind::kCuda; }
  CommunicatorSet* communicators() override { return pool_.get(); }
  StepAgreement* agreement() override { return control_->agreement(); }

 private:
  const std::unique_ptr<HostPool> control_;
  const std::unique_ptr<NcclPool> pool_;  // goes first
};

Rendezvous ToRendezvous(skrull_rendezvous rendezvous, void* context) {
  return [=](const std::string& offer) -> Result<std::string> {
    constexpr int64_t kMaxBytes = 4096;
    std::string answer(kMaxBytes, '\0');
    int64_t bytes = kMaxBytes;
    std::array<char, 256> message{};
    const int32_t code =
        rendezvous(context, offer.data(), static_cast<int64_t>(offer.size()),
                   answer.data(), &bytes, message.data(),
                   static_cast<int64_t>(message.size()));
    message.back() = '\0';
    SKRULL_EXEC_RETURN_IF_ERROR(
        CallbackStatus("rendezvous", code, message.data()));
    if (bytes < 0 || bytes > kMaxBytes) {
      return InvalidArgument("rendezvous: an answer of " +
                             std::to_string(bytes) + " bytes");
    }
    answer.resize(static_cast<size_t>(bytes));
    return answer;
  };
}

Result<std::unique_ptr<HostPool>> NewHostPool(
    const skrull_comm_options& options, nanoseconds limit) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      NotNull(reinterpret_cast<const void*>(options.rendezvous),
              "comm options: rendezvous"));
  HostPoolOptions pool;
  pool.rank = options.rank;
  pool.size = options.ranks;
  if (options.host != nullptr) pool.host = options.host;
  pool.connect_limit = limit;
  pool.time_limit = limit;
  return HostPool::Create(
      pool, ToRendezvous(options.rendezvous, options.rendezvous_context));
}

CommOr NewHostComm(const skrull_comm_options& options, nanoseconds limit) {
  auto made = NewHostPool(options, limit);
  SKRULL_EXEC_RETURN_IF_ERROR(made.status());
  return std::shared_ptr<CommState>(
      std::make_shared<HostComm>(*std::move(made)));
}

// Over a control plane that is there: what fails here fails on all its ranks.
Result<std::unique_ptr<NcclPool>> NewNcclPool(
    const skrull_comm_options& options, nanoseconds limit,
    CommunicatorSet* control) {
  const Result<NcclApi*> api =
      OpenNccl(options.directory == nullptr ? "" : options.directory);
  SKRULL_EXEC_RETURN_IF_ERROR(api.status());
  CpuDevice host;
  Result<DigestAllGather> gather = AllGatherOverPool(&host, control, limit);
  SKRULL_EXEC_RETURN_IF_ERROR(gather.status());
  NcclPoolOptions pool;
  pool.device = options.device_ordinal;
  pool.time_limit = limit;
  pool.register_buffers = options.plain_buffers == 0;
  return NcclPool::Create(
      pool, *api, control,
      GatheredRendezvous(options.rank, options.ranks, *std::move(gather)));
}

CommOr NewNcclComm(const skrull_comm_options& options, nanoseconds limit) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag("comm options: plain_buffers", options.plain_buffers));
  if (options.device_ordinal < 0) {
    return InvalidArgument("comm options: device_ordinal is " +
                           std::to_string(options.device_ordinal));
  }
  auto control = NewHostPool(options, limit);
  SKRULL_EXEC_RETURN_IF_ERROR(control.status());
  auto pool = NewNcclPool(options, limit, (*control)->communicators());
  if (!pool.ok()) {
    (*control)->communicators()->Abort(pool.status());
    return pool.status();
  }
  return std::shared_ptr<CommState>(
      std::make_shared<NcclComm>(*std::move(control), *std::move(pool)));
}

CommOr NewComm(const skrull_comm_options& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(options.name, "comm options: name"));
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return InvalidArgument("comm options: ranks is " +
                           std::to_string(options.ranks));
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return InvalidArgument("comm options: rank is " +
                           std::to_string(options.rank) + ", not in 0 .. " +
                           std::to_string(options.ranks - 1));
  }
  const Result<nanoseconds> given = ToDuration(
      "comm options: time_limit_seconds", options.time_limit_seconds);
  SKRULL_EXEC_RETURN_IF_ERROR(given.status());
  const nanoseconds limit = *given == nanoseconds(0) ? kDefaultLimit : *given;
  if (options.peer != nullptr) {
    return options.peer->state->Join(options.rank, options.ranks, options.name);
  }
  const std::string name = options.name;
  if (name == "host") return NewHostComm(options, limit);
  if (name == "nccl") return NewNcclComm(options, limit);
  if (name != "in_process") {
    return Status(StatusCode::kNotFound,
                  "there is no communicator '" + name +
                      "', only in_process, host and nccl");
  }
  return InProcessComm::Make(
      std::make_shared<SharedPool>(options.ranks,
                                   InProcessOptions{.time_limit = limit}),
      options.rank);
}

}  // namespace
}  // namespace skrull::exec::c_api

using skrull::exec::Status;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_comm_create(const skrull_comm_options* options,
                           skrull_comm** comm) {
  return Call([&]() -> Status {
    skrull_comm_options read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(comm, "comm"));
    SKRULL_EXEC_RETURN_IF_ERROR(
        ReadStruct(options, "comm options", &read,
                   offsetof(skrull_comm_options, directory)));
    auto made = NewComm(read);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *comm = new skrull_comm{*std::move(made)};
    return {};
  });
}

int32_t skrull_comm_abort(skrull_comm* comm, const char* reason) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(comm, "comm"));
    comm->state->communicators()->Abort(
        {skrull::exec::StatusCode::kAborted, reason == nullptr ? "" : reason});
    return {};
  });
}

void skrull_comm_destroy(skrull_comm* comm) { delete comm; }

}  // extern "C"
