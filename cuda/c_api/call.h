// How every function of skrull_exec.h is entered and left.
#ifndef SKRULL_CUDA_C_API_CALL_H_
#define SKRULL_CUDA_C_API_CALL_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "skrull/cuda/status.h"
#include "skrull/cuda/without_exceptions.h"

namespace skrull::exec::c_api {

// Keeps the message for skrull_exec_last_error() and returns the code.
int32_t Report(const Status& status) noexcept;

// A whole function of the interface.
template <class Work>
int32_t Call(const Work& work) noexcept {
  return Report(internal::WithoutExceptions(work));
}

inline Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return InvalidArgument(std::string(name) + " is NULL");
}

inline Status CheckFlag(const char* name, int32_t value) {
  if (value == 0 || value == 1) return {};
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                         ", not 0 or 1");
}

// A field without a meaning in this version, which a later one may give one.
inline Status CheckZero(const char* name, int32_t value) {
  if (value == 0) return {};
  return {StatusCode::kUnsupported, std::string(name) + " is " +
                                        std::to_string(value) +
                                        ", which this version does not know"};
}

// Errors: INVALID_ARGUMENT unless 0 <= seconds <= 1e6.
Result<std::chrono::nanoseconds> ToDuration(const char* name, double seconds);

// What a caller's function returned, under its name. FAILED_PRECONDITION would
// say that all ranks know of a disagreement, and becomes COMM_FAILED; a number
// that is no code becomes INTERNAL.
Status CallbackStatus(const char* name, int32_t code, const char* message);

// The most bytes of a struct of a later version, so that a struct_bytes that is
// nonsense is not read.
inline constexpr int64_t kMostStructBytes = 1 << 16;

// Copies what this version knows of a struct that begins with struct_bytes, and
// zeros for what an older caller does not have. `first_bytes` is the size of
// the struct's first version: the offset of the first field since.
template <class Struct>
Status ReadStruct(const Struct* given, const char* name, Struct* read,
                  size_t first_bytes = sizeof(Struct)) {
  constexpr auto kKnown = static_cast<int64_t>(sizeof(Struct));
  SKRULL_EXEC_RETURN_IF_ERROR(NotNull(given, name));
  const int64_t bytes = given->struct_bytes;
  // Every version's size is a multiple of the alignment.
  if (bytes < static_cast<int64_t>(first_bytes) || bytes > kMostStructBytes ||
      bytes % static_cast<int64_t>(alignof(Struct)) != 0) {
    return InvalidArgument(std::string(name) + ": struct_bytes is " +
                           std::to_string(bytes) + ", not " +
                           std::to_string(kKnown));
  }
  const char* const tail = reinterpret_cast<const char*>(given);
  for (int64_t i = kKnown; i < bytes; ++i) {
    if (tail[i] != 0) {
      return {StatusCode::kUnsupported,
              std::string(name) + ": byte " + std::to_string(i) +
                  " is set, where this version knows " +
                  std::to_string(kKnown)};
    }
  }
  *read = Struct{};
  std::memcpy(read, given, static_cast<size_t>(std::min(bytes, kKnown)));
  return {};
}

}  // namespace skrull::exec::c_api

#endif  // SKRULL_CUDA_C_API_CALL_H_
