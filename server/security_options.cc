#include "skrull/server/security_options.h"

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/address.h"

namespace skrull {

absl::Status CheckSecurity(const ServerOptions& options) {
  const bool has_tls = !options.tls_cert_file.empty();
  if (has_tls && options.tls_key_file.empty()) {
    return FieldError("tls_key_file", "tls_cert_file needs it");
  }
  if (!has_tls && !options.tls_key_file.empty()) {
    return FieldError("tls_cert_file", "tls_key_file needs it");
  }
  if (!has_tls && !options.tls_client_ca_file.empty()) {
    return FieldError("tls_cert_file", "tls_client_ca_file needs it");
  }
  if (has_tls || IsLocalAddress(options.listen_address)) {
    return absl::OkStatus();
  }
  if (!options.auth_file.empty()) {
    return FieldError("auth_file",
                      absl::StrCat("tokens would cross the network in plain "
                                   "text: ",
                                   options.listen_address,
                                   " needs tls_cert_file and tls_key_file"));
  }
  if (!options.allow_plaintext) {
    return FieldError(
        "listen_address",
        absl::StrCat("other machines reach ", options.listen_address,
                     " and it would be served in plain text: set "
                     "tls_cert_file and tls_key_file, or allow_plaintext=true "
                     "where the network itself is trusted"));
  }
  return absl::OkStatus();
}

bool ServesReflection(const ServerOptions& options) {
  return options.reflection == Reflection::kOn ||
         (options.reflection == Reflection::kAuto &&
          IsLocalAddress(options.listen_address));
}

}  // namespace skrull
