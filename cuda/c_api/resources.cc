// Devices, backends and communicators of skrull_exec.h.
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/host/host_pool.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/user_backend.h"

namespace skrull::exec::c_api {
namespace {

// More than any pool has (the planner's limit).
constexpr int32_t kMaxRanks = 1 << 20;
constexpr double kMaxSeconds = 1e6;

Status CheckFlag(int32_t value, const char* name) {
  if (value == 0 || value == 1) return {};
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                         ", not 0 or 1");
}

Result<std::unique_ptr<Device>> NewDevice(
    const skrull_device_options& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(options.name, "device options: name"));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag(options.poison_buffers, "device options: poison_buffers"));
  DeviceOptions wanted;
  if (options.directory != nullptr) wanted.directory = options.directory;
  wanted.ordinal = options.ordinal;
  wanted.poison_buffers = options.poison_buffers == 1;
  return CreateDevice(options.name, wanted);
}

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

  CommunicatorSet* communicators() override {
    return pool_->pool.communicators(rank_);
  }
  StepAgreement* agreement() override { return pool_->pool.agreement(rank_); }

  Result<std::shared_ptr<CommState>> Join(int32_t rank, int32_t ranks,
                                          const char* name) const override {
    if (std::string(name) != "in_process" || ranks != pool_->ranks) {
      return InvalidArgument("comm options: peer is in_process and of " +
                             std::to_string(pool_->ranks) + " ranks");
    }
    return Make(pool_, rank);
  }

  static Result<std::shared_ptr<CommState>> Make(
      std::shared_ptr<SharedPool> pool, int32_t rank) {
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

class HostComm final : public CommState {
 public:
  explicit HostComm(std::unique_ptr<HostPool> pool) : pool_(std::move(pool)) {}

  CommunicatorSet* communicators() override { return pool_->communicators(); }
  StepAgreement* agreement() override { return pool_->agreement(); }

  Result<std::shared_ptr<CommState>> Join(int32_t, int32_t,
                                          const char*) const override {
    return InvalidArgument("comm options: peer is a host communicator");
  }

 private:
  const std::unique_ptr<HostPool> pool_;
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

Result<std::shared_ptr<CommState>> NewHostComm(
    const skrull_comm_options& options, std::chrono::nanoseconds time_limit) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      NotNull(reinterpret_cast<const void*>(options.rendezvous),
              "comm options: rendezvous"));
  HostPoolOptions pool;
  pool.rank = options.rank;
  pool.size = options.ranks;
  if (options.host != nullptr) pool.host = options.host;
  pool.connect_limit = time_limit;
  pool.time_limit = time_limit;
  auto made = HostPool::Create(
      pool, ToRendezvous(options.rendezvous, options.rendezvous_context));
  SKRULL_EXEC_RETURN_IF_ERROR(made.status());
  return std::shared_ptr<CommState>(
      std::make_shared<HostComm>(*std::move(made)));
}

Result<std::shared_ptr<CommState>> NewComm(const skrull_comm_options& options) {
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
  // A NaN fails both comparisons.
  if (!(options.time_limit_seconds >= 0 &&
        options.time_limit_seconds <= kMaxSeconds)) {
    return InvalidArgument("comm options: time_limit_seconds is " +
                           std::to_string(options.time_limit_seconds));
  }
  if (options.peer != nullptr) {
    return options.peer->state->Join(options.rank, options.ranks, options.name);
  }
  InProcessOptions pool;
  if (options.time_limit_seconds > 0) {
    pool.time_limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(options.time_limit_seconds));
  }
  const std::string name = options.name;
  if (name == "host") return NewHostComm(options, pool.time_limit);
  if (name != "in_process") {
    return Status(StatusCode::kNotFound, "there is no communicator '" + name +
                                             "'. Built in: in_process, host");
  }
  return InProcessComm::Make(std::make_shared<SharedPool>(options.ranks, pool),
                             options.rank);
}

}  // namespace

DeviceState::~DeviceState() {
  for (void* handle : streams_) device_->DestroyStream({handle});
}

Result<Stream> DeviceState::CreateStream() {
  const std::lock_guard lock(mutex_);
  Result<Stream> stream = device_->CreateStream(StreamPriority::kNormal);
  if (stream.ok()) streams_.insert(stream->handle);
  return stream;
}

Status DeviceState::DestroyStream(Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.erase(stream.handle) == 0) {
      return InvalidArgument("the stream was not created on this device");
    }
  }
  device_->DestroyStream(stream);
  return {};
}

Status DeviceState::CheckStream(Stream stream) {
  if (device_->memory() == MemoryKind::kCuda) return {};
  const std::lock_guard lock(mutex_);
  if (streams_.contains(stream.handle)) return {};
  return InvalidArgument(stream.handle == nullptr
                             ? "the stream is NULL"
                             : "the stream was not created on this device");
}

}  // namespace skrull::exec::c_api

using skrull::exec::InvalidArgument;
using skrull::exec::Result;
using skrull::exec::Status;
using skrull::exec::Stream;
using namespace skrull::exec::c_api;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_device_create(const skrull_device_options* options,
                             skrull_device** device) {
  return Call([&]() -> Status {
    skrull_device_options read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
    SKRULL_EXEC_RETURN_IF_ERROR(
        ReadStruct(options, "device options", &read,
                   offsetof(skrull_device_options, directory)));
    auto made = NewDevice(read);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *device =
        new skrull_device{std::make_shared<DeviceState>(*std::move(made))};
    return {};
  });
}

void skrull_device_destroy(skrull_device* device) { delete device; }

int32_t skrull_device_create_stream(skrull_device* device, void** stream) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(stream, "stream"));
    const Result<Stream> made = device->state->CreateStream();
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *stream = made->handle;
    return {};
  });
}

int32_t skrull_device_destroy_stream(skrull_device* device, void* stream) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
    return device->state->DestroyStream({stream});
  });
}

int32_t skrull_device_synchronize(skrull_device* device, void* stream) {
  return Call([&]() -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(device, "device"));
    SKRULL_EXEC_RETURN_IF_ERROR(device->state->CheckStream({stream}));
    return device->state->device()->Synchronize({stream});
  });
}

int32_t skrull_backend_create(const skrull_backend_options* options,
                              skrull_backend** backend) {
  return Call([&]() -> Status {
    skrull_backend_options read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(backend, "backend"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(options, "backend options", &read));
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(read.name, "backend options: name"));
    skrull::exec::BackendOptions wanted;
    if (read.directory != nullptr) wanted.directory = read.directory;
    wanted.cpu_threads = read.cpu_threads;
    auto made = skrull::exec::CreateAttentionBackend(read.name, wanted);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *backend = new skrull_backend{*std::move(made)};
    return {};
  });
}

int32_t skrull_backend_create_user(const skrull_attention_table* table,
                                   skrull_backend** backend) {
  return Call([&]() -> Status {
    skrull_attention_table read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(backend, "backend"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(table, "attention table", &read));
    read.struct_bytes = sizeof(read);
    auto made = skrull::exec::CreateUserAttention(read);
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    *backend = new skrull_backend{*std::move(made)};
    return {};
  });
}

void skrull_backend_destroy(skrull_backend* backend) { delete backend; }

int32_t skrull_comm_create(const skrull_comm_options* options,
                           skrull_comm** comm) {
  return Call([&]() -> Status {
    skrull_comm_options read;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(comm, "comm"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(options, "comm options", &read));
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
