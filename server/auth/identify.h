// Tells callers apart by what their calls carry.
#ifndef SKRULL_SERVER_AUTH_IDENTIFY_H_
#define SKRULL_SERVER_AUTH_IDENTIFY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/server/auth/auth_table.h"
#include "skrull/server/auth/caller.h"

namespace skrull {

// What a call shows of who makes it.
struct ShownCredentials {
  // The values of its `authorization` metadata. Secrets.
  std::vector<std::string> authorization = {};
  // Names in the client's certificate, which was verified, in the order in
  // which they are tried: URIs, DNS names, common name.
  std::vector<std::string> certificate_names = {};
};

// The caller of a call that shows one token, "Bearer TOKEN", or none and a
// certificate. A token that is not known is refused even beside a certificate
// that is. Errors: kUnauthenticated, without any part of what was shown. Pure.
absl::StatusOr<Caller> IdentifyCaller(const AuthTable& table,
                                      const ShownCredentials& shown);

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_IDENTIFY_H_
