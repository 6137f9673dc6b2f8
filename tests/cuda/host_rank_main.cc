// One rank of a host pool as a process, for communicators_test:
//   host_rank DIRECTORY RANK SIZE SCENARIO SEED
// meets the others in DIRECTORY, acts, and prints the pool's last status; its
// data, if any, goes to DIRECTORY/RANK. The actor is the last rank.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "skrull/cuda/host/host_pool.h"
#include "skrull/tests/cuda/host_rank.h"

namespace skrull::exec::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Collectives until one fails.
Status GatherUntilFailure(CommunicatorSet* set) {
  while (true) SKRULL_EXEC_RETURN_IF_ERROR(GatherOnce(set));
}

// Computes, that is waits without any collective, until the pool has failed.
Status ComputeUntilFailure(CommunicatorSet* set) {
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (set->Poll().ok() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return set->Poll();
}

Status Act(HostPool* pool, const std::string& scenario, uint64_t seed,
           const std::string& file) {
  CommunicatorSet* const set = pool->communicators();
  const bool actor = set->rank() == set->size() - 1;
  if (scenario == "collectives") {
    const Result<std::string> bytes = RunCollectives(set, seed);
    SKRULL_EXEC_RETURN_IF_ERROR(bytes.status());
    std::ofstream(file, std::ios::binary) << *bytes;
    return {};
  }
  const Block all{0, set->size()};
  SKRULL_EXEC_RETURN_IF_ERROR(set->Announce({&all, 1}));
  for (int i = 0; i < 10; ++i) SKRULL_EXEC_RETURN_IF_ERROR(GatherOnce(set));
  if (scenario == "killed") {
    if (actor) (void)raise(SIGKILL);
    // Half of them wait in a collective, half compute.
    return set->rank() % 2 == 0 ? GatherUntilFailure(set)
                                : ComputeUntilFailure(set);
  }
  if (scenario == "slow") {
    if (actor) std::this_thread::sleep_for(seconds(2));
    return GatherUntilFailure(set);
  }
  if (scenario == "abort") {
    if (actor) {
      set->Abort({StatusCode::kDeviceError, "a test"});
      return set->Poll();
    }
    return set->rank() % 2 == 0 ? GatherUntilFailure(set)
                                : ComputeUntilFailure(set);
  }
  if (scenario == "disagree") {
    const Status differ = pool->agreement()->Agree(actor ? "b" : "a");
    std::printf("%s\n", differ.ToString().c_str());
    // The pool goes on.
    SKRULL_EXEC_RETURN_IF_ERROR(pool->agreement()->Agree("c"));
    return GatherOnce(set);
  }
  return InvalidArgument("no such scenario: " + scenario);
}

int Main(const std::string& directory, int32_t rank, int32_t size,
         const std::string& scenario, uint64_t seed) {
  HostPoolOptions options{.rank = rank, .size = size};
  options.connect_limit = seconds(30);
  options.time_limit = scenario == "slow"
                           ? std::chrono::nanoseconds(milliseconds(300))
                           : seconds(30);
  Result<std::unique_ptr<HostPool>> pool =
      HostPool::Create(options, DirectoryRendezvous(directory, rank));
  const Status status = pool.ok() ? Act(pool->get(), scenario, seed,
                                        directory + "/" + std::to_string(rank))
                                  : pool.status();
  std::printf("%s\n", status.ToString().c_str());
  return 0;
}

}  // namespace
}  // namespace skrull::exec::testing

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: host_rank DIRECTORY RANK SIZE SCENARIO SEED\n");
    return 2;
  }
  return skrull::exec::testing::Main(argv[1], std::atoi(argv[2]),
                                     std::atoi(argv[3]), argv[4],
                                     std::strtoull(argv[5], nullptr, 10));
}
