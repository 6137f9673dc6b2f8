#include "skrull/cuda/status.h"

#include <string>
#include <string_view>

namespace skrull::exec {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kUnsupported:
      return "UNSUPPORTED";
    case StatusCode::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case StatusCode::kPlanBuildFailed:
      return "PLAN_BUILD_FAILED";
    case StatusCode::kDeviceError:
      return "DEVICE_ERROR";
    case StatusCode::kCommFailed:
      return "COMM_FAILED";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code_));
  if (!ok()) text += ": " + message_;
  return text;
}

}  // namespace skrull::exec
