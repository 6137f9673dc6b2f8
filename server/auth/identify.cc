#include "skrull/server/auth/identify.h"

#include <optional>

#include "absl/strings/match.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

absl::Status Unauthenticated(const std::string& why) {
  return MakeError({.reason = ErrorReason::kUnauthenticated}, why);
}

}  // namespace

absl::StatusOr<Caller> IdentifyCaller(const AuthTable& table,
                                      const ShownCredentials& shown) {
  const std::string scheme = "Bearer ";
  if (shown.authorization.size() > 1) {
    return Unauthenticated("the call shows more than one token");
  }
  if (shown.authorization.empty()) {
    const std::optional<Caller> caller =
        table.FindCertificate(shown.certificate_names);
    if (caller) return *caller;
    return Unauthenticated(
        shown.certificate_names.empty()
            ? "the call shows no token: it needs the metadata "
              "authorization: Bearer TOKEN"
            : "the call shows no token, and the client's certificate is not "
              "that of a caller this daemon knows");
  }
  const std::string& value = shown.authorization.front();
  // Schemes are told by letters of either case (RFC 9110, section 11.1).
  if (!absl::StartsWithIgnoreCase(value, scheme)) {
    return Unauthenticated("its authorization is not of the form Bearer TOKEN");
  }
  const std::optional<Caller> caller =
      table.FindToken(value.substr(scheme.size()));
  if (caller) return *caller;
  return Unauthenticated("the call's token is not one this daemon knows");
}

}  // namespace skrull
