// One call of gRPC's health service. Not for users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_HEALTH_H_
#define SKRULL_CLIENT_CPP_INTERNAL_HEALTH_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace skrull::client_internal {

// Asks grpc.health.v1.Health at the other end of `channel` about `service`,
// once. OK if it is SERVING; UNAVAILABLE if it says anything else; the call's
// own error if there is no answer, NOT_FOUND if the server does not know the
// service.
grpc::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service,
                         grpc::ClientContext* context);

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_HEALTH_H_
