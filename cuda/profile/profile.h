// A whole profile: what is measured or read, fitted, and put into a job file.
#ifndef SKRULL_CUDA_PROFILE_PROFILE_H_
#define SKRULL_CUDA_PROFILE_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/cuda/profile/fit.h"
#include "skrull/cuda/profile/fragment.h"
#include "skrull/cuda/profile/link_measure.h"
#include "skrull/cuda/profile/log.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// What is known beforehand of a job, and what a fit must keep to.
struct JobOptions {
  ModelShape model = {};
  exec::DType dtype = exec::DType::kBFloat16;
  bool recomputes = false;
  // What is set here is not counted. Peak bytes of a log go before
  // bytes_per_token, gather_bytes_per_token and static_bytes.
  MemoryNumbers memory = {};
  double max_mean_error = kMaxMeanError;           // of computing and memory
  double max_mean_link_error = kMaxMeanLinkError;  // of exchange
};

struct DeviceProfileOptions {
  std::string device = "cpu";   // a name of device_registry.h
  std::string backend = "cpu";  // a name of backend_registry.h
  // Where the shared objects of both and of gemm.h are looked for; empty: where
  // the dynamic linker looks.
  std::string plugin_directory = {};
  int32_t ordinal = 0;
  int cpu_threads = 1;  // of the cpu backend
  bool deterministic = false;
  // A name of rank_pools.h, or "none": no link is measured.
  std::string communicator = "none";
  int32_t ranks = 4;
  bool link_table = false;  // write the points, do not fit constants
  int64_t least_tokens = 128;
  int64_t most_tokens = 32768;
  std::vector<int32_t> degrees = {2, 4, 8};  // of shards
  int64_t most_link_bytes = int64_t{64} << 20;
  bool cpu_clock = false;  // CPU seconds; for devices with host memory
  MeasureOptions measure = {};
};

struct Profile {
  // What was measured, empty if it was read from a log.
  std::vector<ComputeTiming> compute = {};
  std::vector<LinkTiming> links = {};
  // All fits that were made, in order.
  std::vector<LinearFit> fits = {};
  std::vector<std::string> notes =
      {};  // what a reader of the fragment should know
  CostNumbers cost = {};
  MemoryNumbers memory = {};

  // OK if every fit may be used, or the first verdict that is not.
  exec::Status verdict() const;
};

// Measures and fits. A fit that may not be used is no error: see verdict().
// Errors: those of registries, device, backend, gemm and communicators;
// INVALID_ARGUMENT naming the option that is out of range.
exec::Result<Profile> ProfileDevice(const JobOptions& job,
                                    const DeviceProfileOptions& options);

// Fits what a trainer reported. Errors: INVALID_ARGUMENT for a model that is
// none.
exec::Result<Profile> ProfileLog(const JobOptions& job,
                                 const std::vector<LogRecord>& records);

// The fragment: notes as comments, then `model`, `memory` and `cost`.
std::string FragmentText(const JobOptions& job, const Profile& profile);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_PROFILE_H_
