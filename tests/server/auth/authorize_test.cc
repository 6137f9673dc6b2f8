#include "skrull/server/auth/authorize.h"

#include <catch2/catch.hpp>
#include <string>

#include "skrull/planner/error.h"

namespace skrull {
namespace {

// The whole table, written a second time.
TEST_CASE("Authorize: every role, access and owner", "[server][auth]") {
  struct Row {
    Role role;
    Access access;
    bool call;     // may make such calls at all
    bool own;      // of a job of its own
    bool others;   // of somebody else's
    bool nobodys;  // of one without an owner
  };
  const Row rows[] = {
      {Role::kAdmin, Access::kLook, true, true, true, true},
      {Role::kAdmin, Access::kUse, true, true, true, true},
      {Role::kOwner, Access::kLook, true, true, false, false},
      {Role::kOwner, Access::kUse, true, true, false, false},
      {Role::kReader, Access::kLook, true, true, true, true},
      {Role::kReader, Access::kUse, false, false, false, false},
  };
  for (const Row& row : rows) {
    const Caller caller{.subject = "alice", .role = row.role};
    CAPTURE(RoleName(row.role), static_cast<int>(row.access));
    CHECK(AuthorizeCall(caller, row.access).ok() == row.call);
    CHECK(MayAccess(caller, row.access, "alice") == row.own);
    CHECK(MayAccess(caller, row.access, "bob") == row.others);
    CHECK(MayAccess(caller, row.access, "Alice") == row.others);
    CHECK(MayAccess(caller, row.access, "") == row.nobodys);
    CHECK(AuthorizeJob(caller, row.access, "bob").ok() == row.others);
  }
  // Where callers are not told apart.
  for (Access access : {Access::kLook, Access::kUse}) {
    CHECK(AuthorizeCall(Caller(), access).ok());
    CHECK(MayAccess(Caller(), access, ""));
    CHECK(MayAccess(Caller(), access, "alice"));
  }
  // No subject never owns what has no owner.
  CHECK_FALSE(
      MayAccess({.subject = "", .role = Role::kOwner}, Access::kUse, ""));
}

TEST_CASE("Authorize: refusals are PERMISSION_DENIED and name nobody",
          "[server][auth]") {
  const Caller owner{.subject = "alice", .role = Role::kOwner};
  const Caller reader{.subject = "carol", .role = Role::kReader};
  for (const absl::Status& status : {AuthorizeJob(owner, Access::kUse, "bob"),
                                     AuthorizeJob(owner, Access::kLook, "bob"),
                                     AuthorizeJob(reader, Access::kUse, "bob"),
                                     AuthorizeCall(reader, Access::kUse)}) {
    CHECK(status.code() == absl::StatusCode::kPermissionDenied);
    REQUIRE(GetErrorDetail(status).has_value());
    CHECK(GetErrorDetail(status)->reason == ErrorReason::kPermissionDenied);
    CHECK(std::string(status.message()).find("bob") == std::string::npos);
  }
}

}  // namespace
}  // namespace skrull
