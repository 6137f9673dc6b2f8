// For whom a batch is planned, as far as turns and quotas go.
#ifndef SKRULL_SERVER_PLAN_CLIENT_H_
#define SKRULL_SERVER_PLAN_CLIENT_H_

#include <string>

#include "skrull/server/auth/caller.h"

namespace skrull {

// Where a request for a plan came from.
struct PlanOrigin {
  Caller who = {};
  // Address of the peer without its port: see PeerHost.
  std::string peer = {};
};

// A client has quotas: it is a caller, by its subject. Where callers are not
// told apart it is the job, whose ranks call from many hosts; without a job,
// the peer's host.
std::string ClientOf(const PlanOrigin& origin, const std::string& job);

// A share has turns in the planning queue: it is what a client plans for one
// job, or without one. So no job holds up another, be it of the same subject,
// and nobody else's batches for a job hold up its own.
std::string ShareOf(const PlanOrigin& origin, const std::string& job);

// The host of gRPC's text for a peer: "10.0.0.5" for "ipv4:10.0.0.5:4711",
// "::1" for "ipv6:[::1]:4711"; all of a text of another form, such as "unix:".
std::string PeerHost(const std::string& peer);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_CLIENT_H_
