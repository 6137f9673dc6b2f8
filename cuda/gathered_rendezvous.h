// A rendezvous of ranks that have a pool already: NCCL's unique id needs no
// second way to find each other.
#ifndef SKRULL_CUDA_GATHERED_RENDEZVOUS_H_
#define SKRULL_CUDA_GATHERED_RENDEZVOUS_H_

#include <cstdint>

#include "skrull/cuda/gathered_agreement.h"
#include "skrull/cuda/rendezvous.h"

namespace skrull::exec {

// Rank 0's offer by an all-gather of 32 bytes a rank, in as many calls as it
// takes and one more; AllGatherOverPool makes one of a host pool. A rank that
// fails before it comes aborts the pool, and then no other waits. Thread-safe
// as the all-gather is. REQUIRES: 0 <= rank < ranks. Errors: those of the
// all-gather; INVALID_ARGUMENT on every rank for an offer of more than 4096
// bytes.
Rendezvous GatheredRendezvous(int32_t rank, int32_t ranks,
                              DigestAllGather all_gather);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_GATHERED_RENDEZVOUS_H_
