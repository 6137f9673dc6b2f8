// Runs plans on virtual ranks that share one device.
#ifndef SKRULL_TESTS_CUDA_SHARED_DEVICE_H_
#define SKRULL_TESTS_CUDA_SHARED_DEVICE_H_

#include <memory>
#include <utility>
#include <vector>

#include "skrull/cuda/in_process/device_pool.h"
#include "skrull/tests/cuda/forwarding_device.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

// As RunPlan, with all ranks on `device`, over a DevicePool.
inline RunResult RunPlanOnOneDevice(const TestPlan& plan,
                                    const std::vector<SequenceData>& data,
                                    RunOptions options, Device* device) {
  DevicePool pool(plan.ranks, device, {.time_limit = options.pool.time_limit});
  // RunPlan owns a device for each rank.
  options.new_device = [device](int32_t) {
    return std::make_unique<ForwardingDevice>(device);
  };
  options.change_parts = [&, change = std::move(options.change_parts)](
                             int32_t rank, RankParts* parts) {
    parts->communicators = pool.communicators(rank);
    parts->agreement = pool.agreement(rank);
    if (change) change(rank, parts);
  };
  return RunPlan(plan, data, options);
}

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_SHARED_DEVICE_H_
