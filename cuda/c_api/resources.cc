// Devices and backends of skrull_exec.h.
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/c_api/call.h"
#include "skrull/cuda/c_api/handles.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/user_backend.h"

namespace skrull::exec::c_api {
namespace {

Result<std::unique_ptr<Device>> NewDevice(
    const skrull_device_options& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(options.name, "device options: name"));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckFlag("device options: poison_buffers", options.poison_buffers));
  DeviceOptions wanted;
  if (options.directory != nullptr) wanted.directory = options.directory;
  wanted.ordinal = options.ordinal;
  wanted.poison_buffers = options.poison_buffers == 1;
  return CreateDevice(options.name, wanted);
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
    SKRULL_EXEC_RETURN_IF_ERROR(
        CheckZero("backend options: reserved", read.reserved));
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

int32_t skrull_backend_describe(const skrull_backend* backend,
                                skrull_backend_info* info) {
  return Call([&]() -> Status {
    skrull_backend_info filled;
    SKRULL_EXEC_RETURN_IF_ERROR(NotNull(backend, "backend"));
    SKRULL_EXEC_RETURN_IF_ERROR(ReadStruct(info, "backend info", &filled));
    filled.lse_order = static_cast<int32_t>(backend->backend->lse_order());
    filled.kv_tail_rows = backend->backend->kv_tail_rows();
    *info = filled;
    return {};
  });
}

}  // extern "C"
