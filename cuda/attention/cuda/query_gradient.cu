#include <type_traits>

#include "skrull/cuda/attention/cuda/dispatch.cuh"
#include "skrull/cuda/attention/cuda/launch.h"
#include "skrull/cuda/attention/cuda/query_gradient_kernel.cuh"

namespace skrull::exec::flash {

Status LaunchQueryGradient(const AttentionBackward& call,
                           const RowStatistics& statistics, Stream stream) {
  const BackwardParams params = BackwardParamsOf(call, statistics);
  const Segments& segments = call.segments;
  return Dispatch(call.problem, [&](auto type, auto dim) -> Status {
    using Shape = QueryGradientShape<dim()>;
    const TileSchedule schedule = MakeTileSchedule(
        segments.cu_q, segments.cu_kv, segments.bounds.count, Shape::kQueries);
    dim3 grid;
    SKRULL_EXEC_RETURN_IF_ERROR(
        MakeGrid(schedule.slots, call.problem.q_heads, &grid));
    return SKRULL_LAUNCH((QueryGradientKernel<decltype(type), dim()>), grid,
                         kThreads, Shape::kSharedBytes, stream, params,
                         schedule);
  });
}

}  // namespace skrull::exec::flash
