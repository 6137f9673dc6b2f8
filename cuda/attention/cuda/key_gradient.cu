#include <type_traits>

#include "skrull/cuda/attention/cuda/dispatch.cuh"
#include "skrull/cuda/attention/cuda/key_gradient_kernel.cuh"
#include "skrull/cuda/attention/cuda/launch.h"

namespace skrull::exec::flash {

Status LaunchKeyGradient(const AttentionBackward& call,
                         const RowStatistics& statistics, Stream stream) {
  const BackwardParams params = BackwardParamsOf(call, statistics);
  const Segments& segments = call.segments;
  return Dispatch(call.problem, [&](auto type, auto dim) -> Status {
    using Shape = KeyGradientShape<dim()>;
    const TileSchedule schedule = MakeTileSchedule(
        segments.cu_kv, segments.cu_q, segments.bounds.count, Shape::kKeys);
    dim3 grid;
    SKRULL_EXEC_RETURN_IF_ERROR(
        MakeGrid(schedule.slots, call.problem.kv_heads, &grid));
    return SKRULL_LAUNCH((KeyGradientKernel<decltype(type), dim()>), grid,
                         kThreads, Shape::kSharedBytes, stream, params,
                         schedule);
  });
}

}  // namespace skrull::exec::flash
