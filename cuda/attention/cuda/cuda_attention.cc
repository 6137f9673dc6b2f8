#include "skrull/cuda/attention/cuda/cuda_attention.h"

#include <string>

#include "skrull/cuda/attention/cuda/flash_check.h"
#include "skrull/cuda/attention/cuda/kernel_params.h"
#include "skrull/cuda/attention/cuda/launch.h"
#include "skrull/cuda/attention_check.h"

namespace skrull::exec {
namespace {

// Of the row statistics, two floats for each query and head.
int64_t StatisticsBytes(const AttentionProblem& problem,
                        const SegmentBounds& bounds) {
  return bounds.total_q * problem.q_heads * 2 * int64_t{sizeof(float)};
}

}  // namespace

Status CudaAttention::Supports(const AttentionProblem& problem, Pass) const {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(problem));
  return flash::CheckFlashProblem(problem);
}

Result<int64_t> CudaAttention::Prepare(const AttentionProblem& problem,
                                       const SegmentBounds& bounds, Pass pass) {
  SKRULL_EXEC_RETURN_IF_ERROR(Supports(problem, pass));
  SKRULL_EXEC_RETURN_IF_ERROR(flash::CheckFlashBounds(problem, bounds));
  return pass == Pass::kForward ? 0 : StatisticsBytes(problem, bounds);
}

Status CudaAttention::Forward(const AttentionForward& call, Workspace,
                              Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Supports(call.problem, Pass::kForward));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckForward(call));
  SKRULL_EXEC_RETURN_IF_ERROR(flash::CheckFlashForward(call));
  return flash::LaunchForward(call, stream);
}

Status CudaAttention::Backward(const AttentionBackward& call,
                               Workspace workspace, Stream stream) {
  SKRULL_EXEC_RETURN_IF_ERROR(Supports(call.problem, Pass::kBackward));
  SKRULL_EXEC_RETURN_IF_ERROR(CheckBackward(call));
  SKRULL_EXEC_RETURN_IF_ERROR(flash::CheckFlashBackward(call));
  const int64_t bytes = StatisticsBytes(call.problem, call.segments.bounds);
  if (workspace.data == nullptr || workspace.bytes < bytes) {
    return InvalidArgument("a workspace of " + std::to_string(workspace.bytes) +
                           " bytes, where " + std::to_string(bytes) +
                           " are needed");
  }
  const int64_t rows = call.segments.bounds.total_q;
  auto* floats = static_cast<float*>(workspace.data);
  const flash::RowStatistics statistics{
      .log2_sum = floats,
      .delta = floats + rows * call.problem.q_heads,
      .total_q = rows};
  SKRULL_EXEC_RETURN_IF_ERROR(
      flash::LaunchRowStatistics(call, statistics, stream));
  SKRULL_EXEC_RETURN_IF_ERROR(
      flash::LaunchKeyGradient(call, statistics, stream));
  return flash::LaunchQueryGradient(call, statistics, stream);
}

}  // namespace skrull::exec
