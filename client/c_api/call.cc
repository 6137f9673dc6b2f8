#include "skrull/c_api/call.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/skrull_client.h"
#include "skrull/client/refusal.h"

namespace skrull::client_c {
namespace {

struct LastError {
  int32_t code = 0;
  std::string message;
  RefusalDetail detail;
  std::string request_id;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

constexpr const char* kCodeNames[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};

}  // namespace

static_assert(SKRULL_CLIENT_INVALID_ARGUMENT ==
              static_cast<int>(absl::StatusCode::kInvalidArgument));
static_assert(SKRULL_CLIENT_UNAUTHENTICATED ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));

int32_t Report(const absl::Status& status) noexcept {
  if (status.ok()) return SKRULL_CLIENT_OK;
  try {
    LastError error;
    error.code = static_cast<int32_t>(status.code());
    error.message = MessageWithoutRequestId(status);
    error.request_id = GetRequestId(status);
    if (const std::optional<RefusalDetail> detail = GetRefusalDetail(status)) {
      error.detail = *detail;
    }
    last_error() = std::move(error);
    return static_cast<int32_t>(status.code());
  } catch (...) {
    return ReportNoMemory();
  }
}

int32_t ReportNoMemory() noexcept {
  LastError& error = last_error();
  error.code = SKRULL_CLIENT_RESOURCE_EXHAUSTED;
  error.message.clear();  // none of this takes memory
  error.detail.reason.clear();
  error.detail.field.clear();
  error.detail.indices.clear();
  error.detail.limit.reset();
  error.detail.retry_after_seconds.reset();
  error.request_id.clear();
  return error.code;
}

absl::Status CheckZero(const char* name, int32_t value) {
  if (value == 0) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(name, " is ", value, ", which this version does not know"));
}

absl::StatusOr<std::optional<std::chrono::milliseconds>> ToTimeout(
    const char* name, double seconds) {
  constexpr double kMostSeconds = 86'400;
  if (!(seconds >= 0 && seconds <= kMostSeconds)) {  // NaN fails both
    return InvalidField(
        name, absl::StrCat("must be in 0 .. 86400 seconds, is ", seconds));
  }
  if (seconds == 0) return std::optional<std::chrono::milliseconds>();
  // Up, so that no wait becomes none.
  return std::optional(std::chrono::milliseconds(
      static_cast<int64_t>(std::ceil(seconds * 1e3))));
}

absl::Status CheckStructBytes(const char* name, int64_t bytes, size_t known,
                              size_t alignment) {
  // Every version's size is a multiple of the alignment.
  if (bytes >= static_cast<int64_t>(known) && bytes <= kMostStructBytes &&
      bytes % static_cast<int64_t>(alignment) == 0) {
    return absl::OkStatus();
  }
  return InvalidField(absl::StrCat(name, ".struct_bytes"),
                      absl::StrCat("is ", bytes, ", not ", known));
}

absl::Status CheckStructTail(const char* name, const void* given, int64_t bytes,
                             size_t known) {
  const char* const tail = static_cast<const char*>(given);
  for (auto i = static_cast<int64_t>(known); i < bytes; ++i) {
    if (tail[i] != 0) {
      return absl::UnimplementedError(absl::StrCat(
          name, ": byte ", i, " is set, where this version knows ", known));
    }
  }
  return absl::OkStatus();
}

}  // namespace skrull::client_c

using skrull::client_c::last_error;

extern "C" {

int32_t skrull_client_version(void) { return SKRULL_CLIENT_VERSION; }

const char* skrull_client_code_name(int32_t code) {
  const bool known =
      code >= SKRULL_CLIENT_OK && code <= SKRULL_CLIENT_UNAUTHENTICATED;
  return skrull::client_c::kCodeNames[known ? code : SKRULL_CLIENT_UNKNOWN];
}

int32_t skrull_client_last_error(skrull_client_error* error) {
  // Not by Call(): a failure of this one is not the last error.
  skrull_client_error filled;
  try {
    if (!skrull::client_c::BeginFilling(error, "error", &filled).ok()) {
      return SKRULL_CLIENT_INVALID_ARGUMENT;
    }
  } catch (...) {
    return SKRULL_CLIENT_RESOURCE_EXHAUSTED;
  }
  const auto& last = last_error();
  filled.code = last.code;
  filled.message = last.message.c_str();
  filled.reason = last.detail.reason.c_str();
  filled.field = last.detail.field.c_str();
  filled.request_id = last.request_id.c_str();
  filled.indices = last.detail.indices.data();
  filled.index_count = static_cast<int64_t>(last.detail.indices.size());
  filled.has_limit = last.detail.limit ? 1 : 0;
  filled.limit = last.detail.limit.value_or(0);
  filled.retry_after_seconds = last.detail.retry_after_seconds.value_or(-1);
  *error = filled;
  return SKRULL_CLIENT_OK;
}

}  // extern "C"
