#include "skrull/server/auth/authorize.h"

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"

namespace skrull {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kAdmin:
      return "admin";
    case Role::kOwner:
      return "owner";
    case Role::kReader:
      return "reader";
  }
  return "?";
}

absl::Status AuthorizeCall(const Caller& caller, Access access) {
  if (caller.role != Role::kReader || access == Access::kLook) {
    return absl::OkStatus();
  }
  return MakeError(
      {.reason = ErrorReason::kPermissionDenied},
      absl::StrCat("callers of role ", RoleName(caller.role),
                   " may look at jobs, and not change or use them"));
}

bool MayAccess(const Caller& caller, Access access, const std::string& owner) {
  switch (caller.role) {
    case Role::kAdmin:
      return true;
    case Role::kOwner:
      return !owner.empty() && owner == caller.subject;
    case Role::kReader:
      return access == Access::kLook;
  }
  return false;
}

absl::Status AuthorizeJob(const Caller& caller, Access access,
                          const std::string& owner) {
  if (MayAccess(caller, access, owner)) return absl::OkStatus();
  return MakeError({.reason = ErrorReason::kPermissionDenied},
                   "the job is not this caller's");
}

}  // namespace skrull
