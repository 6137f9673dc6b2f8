// Who may do what: the whole table.
//
//   role    looks           changes and plans
//   admin   at every job    every job
//   owner   at its own      its own; may create jobs and plan bare specs
//   reader  at every job    nothing
//
// A job belongs to the subject that created it. One without an owner, made
// while callers were not told apart, is for admins alone (and for readers to
// look at). Pure; safe from any thread.
#ifndef SKRULL_SERVER_AUTH_AUTHORIZE_H_
#define SKRULL_SERVER_AUTH_AUTHORIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "skrull/server/auth/caller.h"

namespace skrull {

// What a call does. Every RPC is one of the two.
enum class Access : int8_t {
  kLook,  // GetJob, ListJobs, ListCalibrations, GetStatus
  kUse,   // the others: they change a job, or take the daemon's time
};

// "admin" for Role::kAdmin, and so on, as in the auth file.
const char* RoleName(Role role);

// OK if a caller of this role may make such calls at all. Errors:
// kPermissionDenied, before anything is looked up.
absl::Status AuthorizeCall(const Caller& caller, Access access);

// True if the caller may do this with a job of `owner`.
bool MayAccess(const Caller& caller, Access access, const std::string& owner);

// The same as a status. Errors: kPermissionDenied, which tells nothing of the
// job.
absl::Status AuthorizeJob(const Caller& caller, Access access,
                          const std::string& owner);

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_AUTHORIZE_H_
