// What calls of the executor return: a code, and text that names the culprit.
//
// The executor has a Status of its own, without Abseil: attention backends are
// shared objects opened at run time and must not carry a second copy of a
// library, the codes are those of the C interface, and nvcc compiles this
// header. See docs/decisions/executor-status.md.
#ifndef SKRULL_CUDA_STATUS_H_
#define SKRULL_CUDA_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace skrull::exec {

// The numbers are part of the C interface: never change one, only add.
enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,     // the caller's mistake; names the argument
  kFailedPrecondition = 2,  // the ranks hold different plans
  kUnsupported = 3,         // this backend cannot; names the field
  kOutOfMemory = 4,
  kPlanBuildFailed = 5,   // a backend found no kernel for the problem
  kDeviceError = 6,       // a copy, kernel or stream failed
  kCommFailed = 7,        // a collective failed, or its arguments differ
  kAborted = 8,           // another rank failed; says which, where known
  kDeadlineExceeded = 9,  // a rank did not come in time; says which
  kNotFound = 10,         // no such backend or communicator
  kInternal = 11,         // a bug
};

// "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // REQUIRES: code is not kOk.
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;  // "OK", or "CODE: message"

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

// A T, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that functions can return either.
  Result(T value) : value_(std::move(value)) {}
  // REQUIRES: !status.ok().
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }  // OK if ok()

  // REQUIRES: ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the enclosing function if `expression` is a Status that is not
// OK.
#define SKRULL_EXEC_RETURN_IF_ERROR(expression)              \
  do {                                                       \
    if (::skrull::exec::Status skrull_status = (expression); \
        !skrull_status.ok()) {                               \
      return skrull_status;                                  \
    }                                                        \
  } while (false)

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_STATUS_H_
