// A Rendezvous of ranks whose clients know several replicas. Not for users of
// the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_RENDEZVOUS_CALL_H_
#define SKRULL_CLIENT_CPP_INTERNAL_RENDEZVOUS_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "skrull/client/internal/connection.h"

namespace skrull::client_internal {

// Calls the replica that the job and the key of `request` select, so that ranks
// with the same addresses meet: a daemon keeps a meeting in memory. While that
// replica cannot be reached the next one in the order of the key stands in, for
// a few seconds at a time, after which the ranks look for the first one again:
// they need not agree on when it came back. Errors: as PlannerClient.
absl::StatusOr<v1::RendezvousResponse> MeetAtOneReplica(
    Connection* connection, const v1::RendezvousRequest& request,
    SteadyTime deadline, const std::string& traceparent);

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_RENDEZVOUS_CALL_H_
