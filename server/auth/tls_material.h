// What the daemon shows and trusts in TLS handshakes, and whether it can.
#ifndef SKRULL_SERVER_AUTH_TLS_MATERIAL_H_
#define SKRULL_SERVER_AUTH_TLS_MATERIAL_H_

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace skrull {

// All PEM. The key is a secret: never logged, never part of a message.
struct TlsMaterial {
  std::string cert_chain = {};  // the daemon's own certificate first
  std::string key = {};
  // Authorities of clients' certificates; unset = clients show none.
  std::optional<std::string> client_ca = {};
};

// Checks that a server can use it now, and returns when its certificate
// expires. gRPC takes anything and fails at the first handshake; this is how
// wrong files are kept out. Errors: INVALID_ARGUMENT naming the option of the
// part at fault: no certificate or key in it, a key with a passphrase, a key of
// another certificate or too weak for TLS, a certificate that is expired or not
// yet valid, an authority that cannot be read. Pure.
absl::StatusOr<std::chrono::system_clock::time_point> CheckTlsMaterial(
    const TlsMaterial& material, std::chrono::system_clock::time_point now);

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_TLS_MATERIAL_H_
