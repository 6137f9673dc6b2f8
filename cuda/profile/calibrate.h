// From measured micro-batches, whoever measured them, to the coefficients of
// the planner's cost and memory model.
#ifndef SKRULL_CUDA_PROFILE_CALIBRATE_H_
#define SKRULL_CUDA_PROFILE_CALIBRATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/fit.h"

namespace skrull::profile {

// What one rank did in one micro-batch, forward and backward, all layers.
struct MeasuredMicroBatch {
  std::string label = {};  // for residuals
  std::vector<Share> shares = {};
  // All but K/V exchange and waiting for other ranks. Unset or 0: not measured.
  std::optional<double> compute_seconds = {};
  // The K/V exchange itself, hidden or not, without waiting for ranks that come
  // late. Unset or 0: not measured.
  std::optional<double> exchange_seconds = {};
  // Highest device memory in use during it. Unset or 0: not measured.
  std::optional<int64_t> peak_bytes = {};
};

// compute_seconds by seconds_per_flop, seconds_per_flop *
// efficiency_half_tokens and seconds_per_micro_batch (ComputeUnknown); only the
// first must be above 0. The model has one rate for linear layers and
// attention: what attention of short segments loses is efficiency_half_tokens.
// Micro-batches without shares or measurement are left out.
LinearFit FitCompute(const ModelShape& model, const CostForm& form,
                     std::span<const MeasuredMicroBatch> measured,
                     double max_mean_error);

// exchange_seconds by seconds_per_collective and seconds_per_byte
// (LinkUnknown), of which the second must be above 0. Micro-batches that
// exchange nothing, or were not measured, are left out.
LinearFit FitExchange(const ModelShape& model, const CostForm& form,
                      std::span<const MeasuredMicroBatch> measured,
                      double max_mean_error);

// True if some micro-batch exchanged and was measured.
bool HasExchange(std::span<const MeasuredMicroBatch> measured);

// Sets the coefficients that FitCompute fitted. REQUIRES: fit.value[0] > 0.
void SetCompute(const LinearFit& fit, Coefficients* coefficients);

// Unknowns of FitMemory.
enum MemoryUnknown : size_t {
  kBytesPerToken = 0,
  kStaticBytes = 1,
  kGatherBytesPerToken = 2,
};

// peak_bytes by bytes_per_token (must be above 0), static_bytes and, if some
// micro-batch has sharded sequences, gather_bytes_per_token. Micro-batches
// without shares or measurement are left out.
LinearFit FitMemory(std::span<const MeasuredMicroBatch> measured,
                    double max_mean_error);

// True if the peak of some micro-batch was measured.
bool HasMemory(std::span<const MeasuredMicroBatch> measured);

// The largest share of its peak that a micro-batch used beyond what the fit
// says, in [0, 1): with it as reserve_fraction, none of them would have been
// planned beyond the device's memory.
double MemoryReserve(const LinearFit& fit);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_CALIBRATE_H_
