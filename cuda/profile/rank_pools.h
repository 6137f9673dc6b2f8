// Ranks that exchange, all in this process.
#ifndef SKRULL_CUDA_PROFILE_RANK_POOLS_H_
#define SKRULL_CUDA_PROFILE_RANK_POOLS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/nccl/nccl_api.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// REQUIRES: 0 <= rank < size(). What functions return lives as long as the
// pool.
class RankPool {
 public:
  virtual ~RankPool() = default;

  virtual int32_t size() const = 0;
  virtual exec::CommunicatorSet* communicators(int32_t rank) = 0;
  virtual exec::StepAgreement* agreement(int32_t rank) = 0;
  // On whose streams the rank's collectives run.
  virtual exec::Device* device(int32_t rank) = 0;
};

struct RankPoolOptions {
  // "in_process": ranks that copy from each other's memory; "host": ranks that
  // are connected by TCP over the loopback; both on host memory, and on streams
  // of `device`. "device": virtual ranks, all on `device`, whatever its memory.
  // "nccl": a GPU each, those with ordinals below `ranks`.
  std::string name = {};
  int32_t ranks = 0;
  exec::Device* device = nullptr;  // outlives the pool
  // Of nccl: a name of device_registry.h, and where its shared object and
  // libskrull_comm_nccl.so are looked for, as there.
  std::string device_name = {};
  std::string plugin_directory = {};
};

// Errors: NOT_FOUND for another name; INVALID_ARGUMENT for less than two ranks
// or a device with other memory; those of HostPool, NcclPool and the
// registries.
exec::Result<std::unique_ptr<RankPool>> CreateRankPool(
    const RankPoolOptions& options);

// A rank on each device, which the pool owns; rank r has NCCL's device r. `api`
// outlives the pool. Errors: as above.
exec::Result<std::unique_ptr<RankPool>> CreateNcclRanks(
    exec::NcclApi* api, std::vector<std::unique_ptr<exec::Device>> devices);

// Of the statuses that ranks ended with, the first failure that is not the echo
// of another rank's, if there is one; else the first.
exec::Status CauseOf(std::span<const exec::Status> statuses);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_RANK_POOLS_H_
