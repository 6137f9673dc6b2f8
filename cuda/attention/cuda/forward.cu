#include <type_traits>

#include "skrull/cuda/attention/cuda/dispatch.cuh"
#include "skrull/cuda/attention/cuda/forward_kernel.cuh"
#include "skrull/cuda/attention/cuda/launch.h"

namespace skrull::exec::flash {

Status LaunchForward(const AttentionForward& call, Stream stream) {
  const ForwardParams params{
      .shared = SharedParamsOf(call.problem, call.segments),
      .q = HalfRowsOf(call.q),
      .k = HalfRowsOf(call.k),
      .v = HalfRowsOf(call.v),
      .o = HalfRowsOf(call.o),
      .lse = FloatRowsOf(call.lse)};
  const Segments& segments = call.segments;
  return Dispatch(call.problem, [&](auto type, auto dim) -> Status {
    using Shape = ForwardShape<dim()>;
    const TileSchedule schedule = MakeTileSchedule(
        segments.cu_q, segments.cu_kv, segments.bounds.count, Shape::kQueries);
    dim3 grid;
    SKRULL_EXEC_RETURN_IF_ERROR(
        MakeGrid(schedule.slots, call.problem.q_heads, &grid));
    return SKRULL_LAUNCH((ForwardKernel<decltype(type), dim()>), grid, kThreads,
                         Shape::kSharedBytes, stream, params, schedule);
  });
}

}  // namespace skrull::exec::flash
