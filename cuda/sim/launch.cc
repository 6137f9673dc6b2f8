#include "skrull/cuda/sim/launch.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/sim/block.h"
#include "skrull/cuda/sim/stacks.h"

namespace skrull::exec::sim {
namespace {

std::atomic<uint64_t> order_seed = 0;

std::string SizeName(dim3 size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " +
         std::to_string(size.z);
}

int64_t Volume(dim3 size) {
  return static_cast<int64_t>(size.x) * size.y * size.z;
}

Status Refuse(const Launch& launch, const std::string& why) {
  return {StatusCode::kDeviceError,
          "launch of " + std::string(launch.name) + ": " + why};
}

Status Check(const Launch& launch) {
  const dim3 grid = launch.grid;
  const dim3 block = launch.block;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7FFFFFFFU ||
      grid.y > 0xFFFFU || grid.z > 0xFFFFU) {
    return Refuse(launch, "a grid of " + SizeName(grid) + " blocks");
  }
  if (block.x < 1 || block.y < 1 || block.z < 1 || block.x > 1024 ||
      block.y > 1024 || block.z > 64 || Volume(block) > kMaxThreads) {
    return Refuse(launch, "a block of " + SizeName(block) + " threads");
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > kMaxSharedBytes) {
    return Refuse(launch, std::to_string(launch.shared_bytes) +
                              " bytes of shared memory, of which there are " +
                              std::to_string(kMaxSharedBytes));
  }
  return {};
}

// Throws what a block throws.
void RunBlocks(const Launch& launch) {
  static thread_local Stacks stacks;
  std::vector<int64_t> order(static_cast<size_t>(Volume(launch.grid)));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(order_seed.load());
  std::shuffle(order.begin(), order.end(), random);
  Block block(launch.grid, launch.block, launch.shared_bytes, &launch.kernel,
              &stacks);
  const dim3 grid = launch.grid;
  for (const int64_t number : order) {
    const int64_t row = number / grid.x;
    block.Run({static_cast<unsigned>(number % grid.x),
               static_cast<unsigned>(row % grid.y),
               static_cast<unsigned>(row / grid.y)},
              random());
  }
}

Status RunNow(const Launch& launch) {
  try {
    RunBlocks(launch);
    return {};
  } catch (const std::exception& e) {
    return {StatusCode::kInternal,
            "kernel " + std::string(launch.name) + ": " + e.what()};
  }
}

}  // namespace

void SetOrderSeed(uint64_t seed) { order_seed = seed; }

Status RunOnHost(Launch launch, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Check(launch));
  if (stream.handle == nullptr) return RunNow(launch);
  return EnqueueOnHost(
      stream, [launch = std::move(launch)](const Status& device) -> Status {
        return device.ok() ? RunNow(launch) : Status();
      });
}

}  // namespace skrull::exec::sim
