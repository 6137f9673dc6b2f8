// absl::Status -> grpc::Status, the one place where a refusal takes the form
// that clients see.
#ifndef SKRULL_SERVER_STATUS_UTIL_H_
#define SKRULL_SERVER_STATUS_UTIL_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace skrull {

// Code and message, with the RpcStatus that goes into the
// grpc-status-details-bin trailer. Long messages are cut: both together stay
// well below the 8 KiB that peers accept as metadata.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_UTIL_H_
