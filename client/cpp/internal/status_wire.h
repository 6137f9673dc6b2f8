// A daemon's status: message -> plain data. Pure; safe from any thread. Not for
// users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_STATUS_WIRE_H_
#define SKRULL_CLIENT_CPP_INTERNAL_STATUS_WIRE_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"
#include "skrull/client/daemon_status.h"
#include "skrull/v1/status.pb.h"

namespace skrull::client_internal {

DaemonStatus DaemonStatusFromWire(const v1::ServerStatus& wire);

// Saturates at 1970 and in the year 2255, which no clock shows.
std::chrono::system_clock::time_point TimeFromWire(
    const google::protobuf::Timestamp& wire);

// The message in the JSON form of Protocol Buffers, indented, with the names of
// proto/skrull/v1. Errors: INTERNAL for a message that has no such form, such
// as a time outside the years 1 .. 9999.
absl::StatusOr<std::string> JsonFromWire(
    const google::protobuf::Message& message);

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_STATUS_WIRE_H_
