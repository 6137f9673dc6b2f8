#include "skrull/cuda/profile/profile.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/profile/gemm.h"
#include "skrull/cuda/profile/memory.h"
#include "skrull/cuda/profile/own_stream.h"
#include "skrull/cuda/profile/rank_pools.h"
#include "skrull/cuda/tensor.h"

namespace skrull::profile {
namespace {

using exec::InvalidArgument;
using exec::Result;
using exec::Status;

CostForm FormOf(const JobOptions& job) {
  return CostForm::Of(job.recomputes, exec::SizeOf(job.dtype));
}

// Smallest collective that is measured: below it the latency is all.
constexpr int64_t kLeastLinkBytes = 4096;

// Powers of four from kLeastLinkBytes to `most`.
std::vector<int64_t> LinkSizes(int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = kLeastLinkBytes; bytes <= most; bytes *= 4) {
    sizes.push_back(bytes);
  }
  return sizes;
}

// Powers of two from 2 up to the ranks, and the ranks.
std::vector<int32_t> LinkDegrees(int32_t ranks) {
  std::vector<int32_t> degrees;
  for (int32_t degree = 2; degree < ranks; degree *= 2) {
    degrees.push_back(degree);
  }
  degrees.push_back(ranks);
  return degrees;
}

Status CheckOptions(const DeviceProfileOptions& options,
                    const exec::Device& device) {
  if (options.least_tokens < 1 || options.most_tokens < options.least_tokens) {
    return InvalidArgument("lengths from " +
                           std::to_string(options.least_tokens) + " to " +
                           std::to_string(options.most_tokens) + " tokens");
  }
  for (const int32_t degree : options.degrees) {
    if (degree < 2) {
      return InvalidArgument("shards over " + std::to_string(degree) +
                             " ranks");
    }
  }
  if (options.cpu_clock && device.memory() != exec::MemoryKind::kHost) {
    return InvalidArgument("CPU seconds say nothing of device " +
                           std::string(device.name()));
  }
  return {};
}

// Of each, what the job says or else what is counted.
void CountMemory(const JobOptions& job, Profile* profile) {
  profile->memory = job.memory;
  if (!profile->memory.bytes_per_token) {
    profile->memory.bytes_per_token =
        ActivationBytesPerToken(job.model, job.dtype, job.recomputes);
    profile->notes.push_back(
        "bytes_per_token is counted from the model's sizes, not measured");
  }
  if (!profile->memory.gather_bytes_per_token) {
    profile->memory.gather_bytes_per_token =
        GatherBytesPerToken(job.model, job.dtype);
  }
}

void NoteMissingBucket(Profile* profile) {
  if (profile->memory.bucket_size_tokens || profile->memory.device_bytes) {
    return;
  }
  profile->notes.push_back(
      "memory needs device_bytes or bucket_size_tokens before it is a job");
}

void TakeCompute(const LinearFit& fit, Profile* profile) {
  if (fit.verdict.ok()) {
    Coefficients found;
    SetCompute(fit, &found);
    profile->cost.seconds_per_flop = found.seconds_per_flop;
    profile->cost.efficiency_half_tokens = found.efficiency_half_tokens;
    profile->cost.seconds_per_micro_batch = found.seconds_per_micro_batch;
  }
  profile->fits.push_back(fit);
}

void TakeLink(const LinearFit& fit, Profile* profile) {
  profile->cost.intra_node = {
      .seconds_per_collective = fit.value[kSecondsPerCollective],
      .seconds_per_byte = fit.value[kSecondsPerByte]};
  profile->fits.push_back(fit);
}

Status MeasureLink(const JobOptions& job, const DeviceProfileOptions& options,
                   exec::Device* device, const Clock& clock, Profile* profile) {
  if (options.communicator == "none") {
    profile->notes.push_back(
        "no link was measured: intra_node is missing, which means free");
    return {};
  }
  const Result<std::unique_ptr<RankPool>> pool =
      CreateRankPool({.name = options.communicator,
                      .ranks = options.ranks,
                      .device = device,
                      .device_name = options.device,
                      .plugin_directory = options.plugin_directory});
  SKRULL_EXEC_RETURN_IF_ERROR(pool.status());
  Result<std::vector<LinkTiming>> links =
      MeasureLinks(pool->get(),
                   {.degrees = LinkDegrees(options.ranks),
                    .bytes = LinkSizes(options.most_link_bytes),
                    .dtype = job.dtype},
                   clock, options.cpu_clock, options.measure);
  SKRULL_EXEC_RETURN_IF_ERROR(links.status());
  profile->links = *std::move(links);
  const double collectives = profile->cost.form.collectives_per_layer;
  if (options.link_table) {
    profile->cost.intra_node = {.table =
                                    LinkTable(profile->links, collectives)};
  } else {
    TakeLink(FitLinks(profile->links, collectives, job.max_mean_link_error),
             profile);
  }
  profile->notes.push_back("intra_node: " + std::to_string(options.ranks) +
                           " ranks, communicator " + options.communicator);
  return {};
}

Status MeasureAll(const JobOptions& job, const DeviceProfileOptions& options,
                  exec::Device* device, exec::AttentionBackend* backend,
                  Gemm* gemm, Profile* profile) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckOptions(options, *device));
  const Clock clock = options.cpu_clock ? ProcessCpuClock() : WallClock();
  OwnStream stream(device);
  SKRULL_EXEC_RETURN_IF_ERROR(stream.Create());
  Result<std::vector<ComputeTiming>> compute = MeasureCompute(
      device, backend, gemm,
      {.model = job.model,
       .dtype = job.dtype,
       .deterministic = options.deterministic,
       .recomputes = job.recomputes,
       .measure = options.measure},
      ComputeCases(options.least_tokens, options.most_tokens, options.degrees),
      clock, stream.get());
  SKRULL_EXEC_RETURN_IF_ERROR(compute.status());
  profile->compute = *std::move(compute);
  std::vector<MeasuredMicroBatch> measured;
  for (const ComputeTiming& timing : profile->compute) {
    measured.push_back(timing.measured);
  }
  TakeCompute(
      FitCompute(job.model, profile->cost.form, measured, job.max_mean_error),
      profile);
  profile->cost.backward_forward_ratio = BackwardForwardRatio(profile->compute);
  return MeasureLink(job, options, device, clock, profile);
}

}  // namespace

Status Profile::verdict() const {
  for (const LinearFit& fit : fits) {
    SKRULL_EXEC_RETURN_IF_ERROR(fit.verdict);
  }
  return {};
}

Result<Profile> ProfileDevice(const JobOptions& job,
                              const DeviceProfileOptions& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckModel(job.model));
  const Result<std::unique_ptr<exec::Device>> device = exec::CreateDevice(
      options.device,
      {.directory = options.plugin_directory, .ordinal = options.ordinal});
  SKRULL_EXEC_RETURN_IF_ERROR(device.status());
  const Result<std::unique_ptr<exec::AttentionBackend>> backend =
      exec::CreateAttentionBackend(options.backend,
                                   {.directory = options.plugin_directory,
                                    .cpu_threads = options.cpu_threads});
  SKRULL_EXEC_RETURN_IF_ERROR(backend.status());
  const Result<std::unique_ptr<Gemm>> gemm =
      CreateGemm(options.device, options.plugin_directory, options.ordinal);
  SKRULL_EXEC_RETURN_IF_ERROR(gemm.status());
  Profile profile;
  profile.cost.form = FormOf(job);
  profile.notes.push_back(
      "measured on device " + std::string((*device)->name()) +
      ", attention backend " + std::string((*backend)->name()) +
      ", matrix products " + std::string((*gemm)->name()) + ", " +
      std::string(exec::DTypeName(job.dtype)) +
      (options.cpu_clock ? ", in CPU seconds" : ""));
  SKRULL_EXEC_RETURN_IF_ERROR(MeasureAll(
      job, options, device->get(), backend->get(), gemm->get(), &profile));
  CountMemory(job, &profile);
  NoteMissingBucket(&profile);
  return profile;
}

Result<Profile> ProfileLog(const JobOptions& job,
                           const std::vector<LogRecord>& records) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckModel(job.model));
  Profile profile;
  profile.cost.form = FormOf(job);
  std::vector<MeasuredMicroBatch> measured;
  for (const LogRecord& record : records) measured.push_back(record.measured);
  profile.notes.push_back("fitted to " + std::to_string(measured.size()) +
                          " reported micro-batches");
  TakeCompute(
      FitCompute(job.model, profile.cost.form, measured, job.max_mean_error),
      &profile);
  if (HasExchange(measured)) {
    TakeLink(FitExchange(job.model, profile.cost.form, measured,
                         job.max_mean_link_error),
             &profile);
  } else {
    profile.notes.push_back(
        "no exchange was reported: intra_node is missing, which means free");
  }
  if (HasMemory(measured)) {
    const LinearFit fit = FitMemory(measured, job.max_mean_error);
    profile.memory = job.memory;
    profile.memory.bytes_per_token = fit.value[kBytesPerToken];
    profile.memory.static_bytes = static_cast<int64_t>(fit.value[kStaticBytes]);
    profile.memory.gather_bytes_per_token = fit.value[kGatherBytesPerToken];
    profile.memory.reserve_fraction =
        std::max(job.memory.reserve_fraction.value_or(0), MemoryReserve(fit));
    profile.fits.push_back(fit);
  } else {
    CountMemory(job, &profile);
  }
  NoteMissingBucket(&profile);
  return profile;
}

std::string FragmentText(const JobOptions& job, const Profile& profile) {
  std::string text =
      "# Written by skrull-profile: parts of a skrull.v1.JobSpec. Add "
      "parallelism.\n";
  for (const std::string& note : profile.notes) text += "# " + note + "\n";
  return text + ModelText(job.model) + MemoryText(profile.memory) +
         CostText(profile.cost);
}

}  // namespace skrull::profile
