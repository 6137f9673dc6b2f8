#include "skrull/cuda/list_upload.h"

#include <cstring>
#include <utility>

namespace skrull::exec::internal {

void ListUpload::AddSegments(const SegmentList& list, Segments* segments) {
  segments->bounds = list.bounds();
  segments->cu_q = list.cu_q.data();
  segments->cu_kv = list.cu_kv.data();
  const auto bytes = static_cast<int64_t>(list.cu_q.size() * sizeof(int32_t));
  Add(segments->cu_q, bytes, [segments](const void* device) {
    segments->device_cu_q = static_cast<const int32_t*>(device);
  });
  Add(segments->cu_kv, bytes, [segments](const void* device) {
    segments->device_cu_kv = static_cast<const int32_t*>(device);
  });
}

Status ListUpload::Send(Device* device, Buffer* buffer) {
  const auto bytes = static_cast<int64_t>(bytes_.size());
  Result<Buffer> memory = device->Allocate(bytes);
  SKRULL_EXEC_RETURN_IF_ERROR(memory.status());
  *buffer = *std::move(memory);
  SKRULL_EXEC_RETURN_IF_ERROR(
      device->Upload(buffer->data(), bytes_.data(), bytes));
  for (const User& user : users_) {
    user.place(static_cast<const char*>(buffer->data()) + user.offset);
  }
  return {};
}

void ListUpload::Add(const void* data, int64_t bytes, Place place) {
  constexpr size_t kAlignment = 16;
  const size_t offset =
      (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(offset + static_cast<size_t>(bytes));
  if (bytes > 0) {
    std::memcpy(bytes_.data() + offset, data, static_cast<size_t>(bytes));
  }
  users_.push_back({offset, std::move(place)});
}

}  // namespace skrull::exec::internal
