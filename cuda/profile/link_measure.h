// How long the collectives of a K/V exchange take, over sizes and numbers of
// ranks, and the planner's link coefficients from it.
#ifndef SKRULL_CUDA_PROFILE_LINK_MEASURE_H_
#define SKRULL_CUDA_PROFILE_LINK_MEASURE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/cuda/profile/fit.h"
#include "skrull/cuda/profile/fragment.h"
#include "skrull/cuda/profile/measure.h"
#include "skrull/cuda/profile/rank_pools.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::profile {

// Collectives of `bytes` over a block of `degree` ranks. As the cost model
// counts: `bytes` is what is gathered on every rank, and the same before a
// reduce-scatter. What is sent is rounded up to whole elements of each rank.
struct LinkTiming {
  int32_t degree = 0;
  int64_t bytes = 0;
  Timing gather = {};
  Timing reduce = {};
};

struct LinkCases {
  std::vector<int32_t> degrees = {};  // each in [2, ranks of the pool]
  std::vector<int64_t> bytes = {};
  exec::DType dtype = exec::DType::kBFloat16;  // of what is reduced
};

// The largest mean error that FitLinks accepts by default. The model has no
// part for the number of ranks, while g ranks send (g - 1) / g of the bytes
// over each link, 1/2 to nearly all of them: the best constant for both is off
// by a third for each.
inline constexpr double kMaxMeanLinkError = 0.33;

// Measures every size on the first ranks of the pool, for every degree. A rank
// is a thread with a stream of its device; what the first rank sees counts.
// `divide_by_ranks` for a clock that adds up what all ranks do. Errors: those
// of devices and communicators, which then are of no use any more.
exec::Result<std::vector<LinkTiming>> MeasureLinks(
    RankPool* pool, const LinkCases& cases, const Clock& clock,
    bool divide_by_ranks, const MeasureOptions& options);

// Seconds of one collective of an exchange with so many, one of which is the
// reduce-scatter: the mean over all. REQUIRES: collectives_per_layer >= 1.
double CollectiveSeconds(const LinkTiming& timing,
                         double collectives_per_layer);

// CollectiveSeconds by seconds_per_collective and seconds_per_byte
// (LinkUnknown), of which the second must be above 0.
LinearFit FitLinks(std::span<const LinkTiming> timings,
                   double collectives_per_layer, double max_mean_error);

// The measured points, each the mean over degrees. The planner goes on beyond
// the last point with the last slope, which must not be negative: a last point
// that is faster than the one before it is set to its time.
std::vector<LinkPoint> LinkTable(std::span<const LinkTiming> timings,
                                 double collectives_per_layer);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_LINK_MEASURE_H_
