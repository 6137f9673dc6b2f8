// Connects the ranks of a pool, each with each.
#ifndef SKRULL_CUDA_HOST_MESH_H_
#define SKRULL_CUDA_HOST_MESH_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/cuda/host/socket.h"
#include "skrull/cuda/rendezvous.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

struct MeshOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // Where this rank listens while it connects: see Listen.
  std::string host = "127.0.0.1";
  // From the rendezvous' end on.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(60);
};

// One connection to each other rank, by rank; [rank] is not open. Rank 0 offers
// its address and a token drawn at random; every connection starts with the
// token, and one without it, or with other bytes, is closed: it neither hurts
// nor delays the others. Rank 0 tells the ranks each other's addresses, and
// each dials the lower ones. Errors: those of `rendezvous`, Listen and Connect;
// COMM_FAILED if it does not give rank 0's offer, a rank came twice or for
// another size; DEADLINE_EXCEEDED naming the ranks that did not connect.
Result<std::vector<Fd>> ConnectMesh(const MeshOptions& options,
                                    const Rendezvous& rendezvous);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_MESH_H_
