#include "skrull/cuda/c_api/call.h"

#include <algorithm>
#include <cstddef>

#include "skrull/cuda/c_api/skrull_exec.h"

namespace skrull::exec::c_api {
namespace {

// A fixed array: keeping a message must not fail.
constexpr size_t kMessageBytes = 1024;
thread_local char last_error[kMessageBytes];

}  // namespace

static_assert(SKRULL_INTERNAL == static_cast<int32_t>(StatusCode::kInternal));
static_assert(SKRULL_NOT_FOUND == static_cast<int32_t>(StatusCode::kNotFound));
static_assert(SKRULL_UNSUPPORTED ==
              static_cast<int32_t>(StatusCode::kUnsupported));

int32_t Report(const Status& status) noexcept {
  if (!status.ok()) {
    size_t size = std::min(status.message().size(), kMessageBytes - 1);
    // Not in the middle of a character of UTF-8.
    while (size > 0 && size < status.message().size() &&
           (status.message()[size] & 0xC0) == 0x80) {
      --size;
    }
    std::memcpy(last_error, status.message().data(), size);
    last_error[size] = '\0';
  }
  return static_cast<int32_t>(status.code());
}

Result<std::chrono::nanoseconds> ToDuration(const char* name, double seconds) {
  constexpr double kMaxSeconds = 1e6;
  if (!(seconds >= 0 && seconds <= kMaxSeconds)) {  // NaN fails both
    return InvalidArgument(std::string(name) + " is " +
                           std::to_string(seconds));
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

Status CallbackStatus(const char* name, int32_t code, const char* message) {
  if (code == 0) return {};
  std::string text = std::string(name) + ": " + message;
  const auto status = static_cast<StatusCode>(code);
  if (StatusCodeName(status) == "UNKNOWN") {
    return {StatusCode::kInternal, text + " (" + std::to_string(code) + ")"};
  }
  return {status == StatusCode::kFailedPrecondition ? StatusCode::kCommFailed
                                                    : status,
          std::move(text)};
}

}  // namespace skrull::exec::c_api

extern "C" {

int32_t skrull_exec_version(void) { return SKRULL_EXEC_VERSION; }

const char* skrull_exec_last_error(void) {
  return skrull::exec::c_api::last_error;
}

const char* skrull_exec_status_name(int32_t code) {
  // Names are literals, and end with their end mark.
  return skrull::exec::StatusCodeName(
             static_cast<skrull::exec::StatusCode>(code))
      .data();
}

}  // extern "C"
