#include "skrull/server/status_util.h"

#include <string>

#include "skrull/server/convert.h"

namespace skrull {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  constexpr size_t kMaxMessageBytes = 2000;
  if (status.ok()) return grpc::Status::OK;
  v1::RpcStatus message = StatusToProto(status);  // its text is ASCII
  if (message.message().size() > kMaxMessageBytes) {
    message.mutable_message()->resize(kMaxMessageBytes);
    message.mutable_message()->append(" ...");
  }
  return grpc::Status(static_cast<grpc::StatusCode>(message.code()),
                      message.message(), message.SerializeAsString());
}

}  // namespace skrull
