// How every function of skrull_client.h is entered and left.
#ifndef SKRULL_CLIENT_C_API_CALL_H_
#define SKRULL_CLIENT_C_API_CALL_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/internal/wire.h"

namespace skrull::client_c {

using client_internal::InvalidField;

// Keeps the error for skrull_client_last_error() and returns its code.
int32_t Report(const absl::Status& status) noexcept;
// The same for what has no memory left to describe itself.
int32_t ReportNoMemory() noexcept;

// A whole function of the interface: runs `work`, which returns a Status.
template <class Work>
int32_t Call(const Work& work) noexcept {
  try {
    return Report(work());
  } catch (const std::bad_alloc&) {
    return ReportNoMemory();
  } catch (const std::exception& e) {
    return Report(absl::InternalError(e.what()));
  } catch (...) {
    return Report(absl::InternalError("an unknown exception"));
  }
}

inline absl::Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return absl::OkStatus();
  return InvalidField(name, "is NULL");
}

// NULL is the empty text.
inline std::string Text(const char* text) { return text ? text : ""; }

// A field without a meaning in this version, which a later one may give one.
absl::Status CheckZero(const char* name, int32_t value);

// nullopt for 0. Errors: INVALID_ARGUMENT unless 0 <= seconds <= 86400.
absl::StatusOr<std::optional<std::chrono::milliseconds>> ToTimeout(
    const char* name, double seconds);

// The most bytes of a struct of a later version, so that a struct_bytes that is
// nonsense is not read.
inline constexpr int64_t kMostStructBytes = 1 << 16;

absl::Status CheckStructBytes(const char* name, int64_t bytes, size_t known,
                              size_t alignment);
absl::Status CheckStructTail(const char* name, const void* given, int64_t bytes,
                             size_t known);

// Copies what this version knows of a struct that begins with struct_bytes.
// Errors: INVALID_ARGUMENT for a size that no version has; UNIMPLEMENTED if
// what this version does not know is set.
template <class Struct>
absl::Status ReadStruct(const Struct* given, const char* name, Struct* read) {
  absl::Status status = NotNull(given, name);
  if (!status.ok()) return status;
  const int64_t bytes = given->struct_bytes;
  status = CheckStructBytes(name, bytes, sizeof(Struct), alignof(Struct));
  if (!status.ok()) return status;
  status = CheckStructTail(name, given, bytes, sizeof(Struct));
  if (!status.ok()) return status;
  *read = *given;
  return status;
}

// The struct that a caller wants filled, empty but for its size. Errors: as
// ReadStruct; what it holds beside its size does not matter.
template <class Struct>
absl::Status BeginFilling(const Struct* given, const char* name,
                          Struct* filled) {
  absl::Status status = NotNull(given, name);
  if (!status.ok()) return status;
  status = CheckStructBytes(name, given->struct_bytes, sizeof(Struct),
                            alignof(Struct));
  if (!status.ok()) return status;
  *filled = Struct{};
  filled->struct_bytes = given->struct_bytes;
  return status;
}

}  // namespace skrull::client_c

#define SKRULL_CLIENT_C_RETURN_IF_ERROR(expression)  \
  do {                                               \
    absl::Status skrull_status_ = (expression);      \
    if (!skrull_status_.ok()) return skrull_status_; \
  } while (false)

#endif  // SKRULL_CLIENT_C_API_CALL_H_
