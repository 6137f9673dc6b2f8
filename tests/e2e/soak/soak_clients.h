// Clients that come, go, give up and misbehave, one thread each.
#ifndef SKRULL_TESTS_E2E_SOAK_SOAK_CLIENTS_H_
#define SKRULL_TESTS_E2E_SOAK_SOAK_CLIENTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace skrull::testing {

// What all clients of a soak add to. Thread-safe.
class SoakLog {
 public:
  // A call has ended. Anything but one of the codes that its client expects,
  // and any RESOURCE_EXHAUSTED or UNAVAILABLE without our reason, is a failure.
  void Ended(const std::string& what, const grpc::Status& status,
             std::initializer_list<grpc::StatusCode> expected);
  void Fail(const std::string& what);

  // Calls so far, by code.
  std::map<grpc::StatusCode, int64_t> calls();
  // The first failures.
  std::vector<std::string> failures();

 private:
  std::mutex mutex_;
  std::map<grpc::StatusCode, int64_t> calls_;
  std::vector<std::string> failures_;
};

// Each runs until `stop`, and ends within the longest deadline of its calls,
// a minute. `id` tells those of one kind apart and seeds what they draw.
struct SoakClient {
  std::string address;
  int id = 0;
  SoakLog* log = nullptr;
  // Of its first job, less 1. Above those of any earlier client of the same id:
  // the daemon then forgets what that one left.
  int64_t last_generation = 0;
};

// Registers a job, plans and fetches steps, reports, and leaves: it deletes the
// job, or comes back as its next generation. Now and then a batch is large.
void RunTrainer(const SoakClient& client, const std::stop_token& stop);

// Calls that are cancelled or run out of time: plans, waits for plans that no
// one makes, ranks that wait for others, streams.
void RunCanceller(const SoakClient& client, const std::stop_token& stop);

// Streams whose answers are read slowly, or not at all, and then dropped.
void RunSlowReader(const SoakClient& client, const std::stop_token& stop);

// Connections that go silent with calls under way, and one that never speaks.
// `patience_seconds`: within which the daemon must have closed each; only
// counts if `stop` comes later.
void RunHalfOpen(const SoakClient& client, double patience_seconds,
                 const std::stop_token& stop);

// Processes, each a few of the above, that are killed. `program` is called with
// "--victim ADDRESS ID".
void RunKilled(const SoakClient& client, const std::string& program,
               const std::stop_token& stop);

// What such a process does; never returns.
[[noreturn]] void RunVictim(const std::string& address, int id);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_E2E_SOAK_SOAK_CLIENTS_H_
