// What tests of host pools share: ranks that find each other through a
// directory, and a list of collectives whose results any pool must produce.
#ifndef SKRULL_TESTS_CUDA_HOST_RANK_H_
#define SKRULL_TESTS_CUDA_HOST_RANK_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/rendezvous.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::testing {

// Rank 0 writes its offer to a file in `directory`, the others wait for it.
// DEADLINE_EXCEEDED after half a minute.
Rendezvous DirectoryRendezvous(const std::string& directory, int32_t rank);

// Announces several blocks and runs collectives of all kinds, types and many
// sizes on them, with data drawn from `seed`. The bytes this rank received, in
// order.
Result<std::string> RunCollectives(CommunicatorSet* set, uint64_t seed);

// One all-gather of a few bytes on the whole pool, announced before.
Status GatherOnce(CommunicatorSet* set);

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_HOST_RANK_H_
