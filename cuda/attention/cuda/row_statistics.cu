#include <type_traits>

#include "skrull/cuda/attention/cuda/dispatch.cuh"
#include "skrull/cuda/attention/cuda/launch.h"
#include "skrull/cuda/attention/cuda/row_statistics_kernel.cuh"

namespace skrull::exec::flash {

Status LaunchRowStatistics(const AttentionBackward& call,
                           const RowStatistics& statistics, Stream stream) {
  const RowStatisticsParams params{.o = HalfRowsOf(call.o),
                                   .d_o = HalfRowsOf(call.d_o),
                                   .lse = FloatRowsOf(call.lse),
                                   .q_heads = call.problem.q_heads,
                                   .statistics = statistics};
  const int64_t rows = statistics.total_q * call.problem.q_heads;
  return Dispatch(call.problem, [&](auto type, auto dim) -> Status {
    constexpr int kRows = kStatisticsRows<dim()>;
    dim3 grid;
    SKRULL_EXEC_RETURN_IF_ERROR(
        MakeGrid((rows + kRows - 1) / kRows, /*heads=*/1, &grid));
    return SKRULL_LAUNCH((RowStatisticsKernel<decltype(type), dim()>), grid,
                         kThreads, /*shared_bytes=*/0, stream, params);
  });
}

}  // namespace skrull::exec::flash
