#include "skrull/cuda/profile/rank_pools.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/gathered_agreement.h"
#include "skrull/cuda/gathered_rendezvous.h"
#include "skrull/cuda/host/host_pool.h"
#include "skrull/cuda/in_process/device_pool.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/nccl_library.h"
#include "skrull/cuda/nccl/nccl_pool.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;
using Devices = std::vector<std::unique_ptr<exec::Device>>;

constexpr auto kLimit = std::chrono::seconds(60);

// Calls make(rank) for each rank on a thread of its own, for they wait for each
// other, and returns the cause of what failed. Throws std::system_error if a
// thread cannot start.
Status OnThreads(int32_t ranks, const std::function<Status(int32_t)>& make) {
  std::vector<std::future<Status>> making;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    making.push_back(std::async(std::launch::async, make, rank));
  }
  std::vector<Status> statuses;
  for (std::future<Status>& future : making) statuses.push_back(future.get());
  return CauseOf(statuses);
}

// Ranks in one pool of this process, InProcessPool or DevicePool.
template <class Pool>
class SharedRanks final : public RankPool {
 public:
  // `arguments` are those of Pool's constructor behind the number of ranks.
  template <class... Arguments>
  SharedRanks(int32_t ranks, exec::Device* device, Arguments... arguments)
      : size_(ranks), device_(device), pool_(ranks, arguments...) {}

  int32_t size() const override { return size_; }
  exec::CommunicatorSet* communicators(int32_t rank) override {
    return pool_.communicators(rank);
  }
  exec::StepAgreement* agreement(int32_t rank) override {
    return pool_.agreement(rank);
  }
  exec::Device* device(int32_t) override { return device_; }

 private:
  const int32_t size_;
  exec::Device* const device_;
  Pool pool_;
};

class HostRanks final : public RankPool {
 public:
  HostRanks(int32_t ranks, exec::Device* device)
      : device_(device), pools_(static_cast<size_t>(ranks)) {}

  Status Connect() {
    std::promise<std::string> offer;
    const std::shared_future<std::string> offered = offer.get_future().share();
    return OnThreads(size(), [&](int32_t rank) -> Status {
      // Rank 0 offers; the others wait for it as long as it may take to fail.
      const exec::Rendezvous meet =
          [&](const std::string& mine) -> Result<std::string> {
        if (rank == 0) offer.set_value(mine);
        if (offered.wait_for(kLimit) != std::future_status::ready) {
          return Status(exec::StatusCode::kDeadlineExceeded,
                        "rank 0 offered nothing within 60 seconds");
        }
        return offered.get();
      };
      exec::HostPoolOptions options;
      options.rank = rank;
      options.size = size();
      auto made = exec::HostPool::Create(options, meet);
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      pools_[static_cast<size_t>(rank)] = *std::move(made);
      return {};
    });
  }

  int32_t size() const override { return static_cast<int32_t>(pools_.size()); }
  exec::CommunicatorSet* communicators(int32_t rank) override {
    return pools_[static_cast<size_t>(rank)]->communicators();
  }
  exec::StepAgreement* agreement(int32_t rank) override {
    return pools_[static_cast<size_t>(rank)]->agreement();
  }
  exec::Device* device(int32_t) override { return device_; }

 private:
  exec::Device* const device_;
  std::vector<std::unique_ptr<exec::HostPool>> pools_;
};

class NcclRanks final : public RankPool {
 public:
  explicit NcclRanks(Devices devices)
      : devices_(std::move(devices)),
        control_(static_cast<int32_t>(devices_.size()), &host_),
        pools_(devices_.size()) {}

  Status Connect(exec::NcclApi* api) {
    SKRULL_EXEC_RETURN_IF_ERROR(control_.Connect());
    return OnThreads(size(), [&](int32_t rank) -> Status {
      const Status status = ConnectRank(api, rank);
      if (!status.ok()) control_.communicators(rank)->Abort(status);
      return status;
    });
  }

  int32_t size() const override {
    return static_cast<int32_t>(devices_.size());
  }
  exec::CommunicatorSet* communicators(int32_t rank) override {
    return pools_[static_cast<size_t>(rank)].get();
  }
  exec::StepAgreement* agreement(int32_t rank) override {
    return control_.agreement(rank);
  }
  exec::Device* device(int32_t rank) override {
    return devices_[static_cast<size_t>(rank)].get();
  }

 private:
  Status ConnectRank(exec::NcclApi* api, int32_t rank) {
    exec::CommunicatorSet* const control = control_.communicators(rank);
    Result<exec::DigestAllGather> gather =
        exec::AllGatherOverPool(&host_, control, kLimit);
    SKRULL_EXEC_RETURN_IF_ERROR(gather.status());
    exec::NcclPoolOptions options;
    options.device = rank;
    auto made = exec::NcclPool::Create(
        options, api, control,
        exec::GatheredRendezvous(rank, size(), *std::move(gather)));
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    pools_[static_cast<size_t>(rank)] = *std::move(made);
    return {};
  }

  const Devices devices_;
  exec::CpuDevice host_;
  HostRanks control_;  // on host_
  std::vector<std::unique_ptr<exec::NcclPool>> pools_;
};

Result<std::unique_ptr<RankPool>> CreateHostRanks(
    const RankPoolOptions& options) {
  auto pool = std::make_unique<HostRanks>(options.ranks, options.device);
  SKRULL_EXEC_RETURN_IF_ERROR(pool->Connect());
  return std::unique_ptr<RankPool>(std::move(pool));
}

Result<std::unique_ptr<RankPool>> CreateGpuRanks(
    const RankPoolOptions& options) {
  const Result<exec::NcclApi*> api = exec::OpenNccl(options.plugin_directory);
  SKRULL_EXEC_RETURN_IF_ERROR(api.status());
  Devices devices;
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    auto device = exec::CreateDevice(
        options.device_name,
        {.directory = options.plugin_directory, .ordinal = rank});
    SKRULL_EXEC_RETURN_IF_ERROR(device.status());
    devices.push_back(*std::move(device));
  }
  return CreateNcclRanks(*api, std::move(devices));
}

}  // namespace

Result<std::unique_ptr<RankPool>> CreateRankPool(
    const RankPoolOptions& options) {
  if (options.ranks < 2) {
    return exec::InvalidArgument(std::to_string(options.ranks) +
                                 " ranks exchange nothing");
  }
  const bool on_host = options.name == "in_process" || options.name == "host";
  const bool on_gpus = options.name == "nccl";
  const bool has_host = options.device->memory() == exec::MemoryKind::kHost;
  if (!on_host && !on_gpus && options.name != "device") {
    return Status(exec::StatusCode::kNotFound,
                  "no communicator " + options.name +
                      "; there are in_process, host, device and nccl");
  }
  if ((on_host && !has_host) || (on_gpus && has_host)) {
    return exec::InvalidArgument("communicator " + options.name +
                                 " does not work in memory of device " +
                                 std::string(options.device->name()));
  }
  try {
    if (options.name == "in_process") {
      return std::unique_ptr<RankPool>(
          std::make_unique<SharedRanks<exec::InProcessPool>>(options.ranks,
                                                             options.device));
    }
    if (options.name == "device") {
      return std::unique_ptr<RankPool>(
          std::make_unique<SharedRanks<exec::DevicePool>>(
              options.ranks, options.device, options.device));
    }
    return on_host ? CreateHostRanks(options) : CreateGpuRanks(options);
  } catch (const std::system_error& e) {
    return Status(exec::StatusCode::kOutOfMemory,
                  std::string("no threads for the ranks: ") + e.what());
  }
}

Result<std::unique_ptr<RankPool>> CreateNcclRanks(exec::NcclApi* api,
                                                  Devices devices) {
  auto pool = std::make_unique<NcclRanks>(std::move(devices));
  SKRULL_EXEC_RETURN_IF_ERROR(pool->Connect(api));
  return std::unique_ptr<RankPool>(std::move(pool));
}

Status CauseOf(std::span<const Status> statuses) {
  Status cause;
  for (const Status& status : statuses) {
    if (status.ok()) continue;
    if (status.code() != exec::StatusCode::kAborted) return status;
    if (cause.ok()) cause = status;
  }
  return cause;
}

}  // namespace skrull::profile
