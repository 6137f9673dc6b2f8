// Who makes a call, as far as the daemon was told.
#ifndef SKRULL_SERVER_AUTH_CALLER_H_
#define SKRULL_SERVER_AUTH_CALLER_H_

#include <cstdint>
#include <string>

namespace skrull {

// What a caller may do; auth/authorize.h is the table.
enum class Role : int8_t {
  kAdmin,   // everything, with every job
  kOwner,   // creates jobs, and uses its own
  kReader,  // looks at every job, and changes nothing
};

// Plain data.
struct Caller {
  // Name in the auth file, [A-Za-z0-9][A-Za-z0-9._@:/-]*, at most 128
  // characters. Empty where callers are not told apart: then everyone is an
  // admin. It is no secret: logs may show it.
  std::string subject = {};
  Role role = Role::kAdmin;

  friend bool operator==(const Caller&, const Caller&) = default;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_CALLER_H_
