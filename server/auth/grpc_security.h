// Security where it meets gRPC: the credentials of a server, and what a call
// shows of who makes it.
#ifndef SKRULL_SERVER_AUTH_GRPC_SECURITY_H_
#define SKRULL_SERVER_AUTH_GRPC_SECURITY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"
#include "skrull/server/auth/authorize.h"
#include "skrull/server/auth/caller.h"
#include "skrull/server/auth/security.h"
#include "skrull/server/options.h"

namespace skrull {

// Credentials that use `security`'s TLS material of the moment in every
// handshake; plaintext where it has none. They must outlive the server, and
// `security` must outlive them.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const Security* security, ClientCertificates client_certificates);

// Who makes the call, if he may make such calls at all; an admin without a name
// where callers are not told apart. Every RPC asks this first, and again for
// each batch of a stream. Errors: kUnauthenticated, kPermissionDenied.
absl::StatusOr<Caller> AdmitCall(const Security& security,
                                 const grpc::ServerContextBase& context,
                                 Access access);

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_GRPC_SECURITY_H_
