// A call's deadline on the clock that waits are measured with.
#ifndef SKRULL_SERVER_DEADLINE_H_
#define SKRULL_SERVER_DEADLINE_H_

#include <chrono>

#include "grpcpp/grpcpp.h"
#include "skrull/server/clock.h"

namespace skrull {

// When the caller stops waiting. A call without a deadline, or with a later
// one, gets `longest` from now.
inline std::chrono::steady_clock::time_point CallDeadline(
    const grpc::CallbackServerContext& context, const Clock& clock,
    std::chrono::duration<double> longest) {
  using std::chrono::steady_clock;
  const auto limit =
      std::chrono::duration_cast<steady_clock::duration>(longest);
  const auto now = clock.MonotonicNow();
  // The context's deadline is on the machine's clock, far away if there is
  // none.
  const auto wall_now = clock.Now();
  if (context.deadline() - limit >= wall_now) return now + limit;
  return now + std::chrono::duration_cast<steady_clock::duration>(
                   context.deadline() - wall_now);
}

}  // namespace skrull

#endif  // SKRULL_SERVER_DEADLINE_H_
