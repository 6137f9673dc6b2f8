#include "skrull/client/internal/rendezvous_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skrull::client_internal {
namespace {

using std::chrono::milliseconds;

// Longest wait at a replica that stands in. Longer than ranks take to find that
// the first one is gone: connections fail within 2 s.
constexpr milliseconds kStandInWait{6'000};
// A daemon answers a wait a little before its deadline, at most 200 ms.
constexpr milliseconds kMargin{500};

}  // namespace

absl::StatusOr<v1::RendezvousResponse> MeetAtOneReplica(
    Connection* connection, const v1::RendezvousRequest& request,
    SteadyTime deadline, const std::string& traceparent) {
  ReplicaSet& replicas = connection->replicas();
  const std::string key = absl::StrCat(request.job(), "\n", request.key());
  v1::RendezvousResponse response;
  int choice = 0;
  const absl::Status status = connection->Call(
      "Rendezvous", deadline, traceparent, [&](grpc::ClientContext* context) {
        response.Clear();
        const SteadyTime now = std::chrono::steady_clock::now();
        const bool stands_in = choice > 0;
        if (stands_in) {
          context->set_deadline(
              std::chrono::system_clock::now() +
              std::min<SteadyTime::duration>(kStandInWait, deadline - now));
        }
        grpc::Status result = replicas.ForKey(key, choice)
                                  .Rendezvous(context, request, &response);
        if (result.error_code() == grpc::StatusCode::UNAVAILABLE) {
          choice = (choice + 1) % replicas.size();
        } else if (stands_in &&
                   result.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                   std::chrono::steady_clock::now() + kMargin < deadline) {
          // The wait of some rank here is over, not the call's.
          choice = 0;
          result = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                result.error_message());
        }
        return result;
      });
  if (!status.ok()) return status;
  return response;
}

}  // namespace skrull::client_internal
