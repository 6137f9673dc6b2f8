// How the ranks of a pool find each other before they have a communicator.
#ifndef SKRULL_CUDA_RENDEZVOUS_H_
#define SKRULL_CUDA_RENDEZVOUS_H_

#include <functional>
#include <string>

#include "skrull/cuda/status.h"

namespace skrull::exec {

// Gives every rank what rank 0 offers: bytes, at most 4096. Rank 0 passes its
// offer, the others "". Blocks until all ranks have called it, or a deadline of
// the implementation. All or none: either all ranks get the bytes or none does,
// as far as that can be had; a rank whose answer is lost makes the others time
// out in what they set up next.
//
// The planner's service is one: PlannerClient::Rendezvous, with the job's name
// and generation, a key, and the pool's rank and size.
using Rendezvous = std::function<Result<std::string>(const std::string& offer)>;

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_RENDEZVOUS_H_
