#include "skrull/cuda/executor_check.h"

#include <string>
#include <utility>

#include "skrull/cuda/attention_check.h"

namespace skrull::exec {
namespace {

Status CheckLseOrder(const Tensor& lse, LseOrder order) {
  if (lse.rows <= 1 || lse.heads <= 1) return {};
  if (order == LseOrder::kRowMajor && lse.head_stride != 1) {
    return InvalidArgument("lse must be [rows, heads] for this backend");
  }
  if (order == LseOrder::kHeadMajor && lse.row_stride != 1) {
    return InvalidArgument("lse must be [heads, rows] for this backend");
  }
  return {};
}

// The tensors that forward and backward passes share.
Status CheckTensors(const AttentionProblem& p, int64_t rows, LseOrder order,
                    const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& o, const Tensor& lse) {
  const auto check = [&](const char* name, const Tensor& tensor,
                         int32_t heads) {
    return CheckTensor(name, tensor, p.dtype, rows, heads, p.head_dim);
  };
  SKRULL_EXEC_RETURN_IF_ERROR(check("q", q, p.q_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(check("k", k, p.kv_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(check("v", v, p.kv_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(check("o", o, p.q_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckTensor("lse", lse, AccumulatorOf(p.dtype), rows, p.q_heads, 1));
  return CheckLseOrder(lse, order);
}

}  // namespace

Status CheckOptions(const ExecutorOptions& options) {
  SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(options.problem));
  const DType accumulator = AccumulatorOf(options.problem.dtype);
  if (options.exchange != Exchange::kAllGather &&
      options.exchange != Exchange::kRing) {
    return InvalidArgument(
        "exchange " + std::to_string(static_cast<int32_t>(options.exchange)) +
        " is not known");
  }
  const DType grad = options.grad_comm_dtype.value_or(accumulator);
  const bool own =
      grad == options.problem.dtype && options.exchange == Exchange::kAllGather;
  if (grad != accumulator && !own) {
    return InvalidArgument("grad_comm_dtype is " +
                           std::string(DTypeName(grad)) + ", which a " +
                           std::string(DTypeName(options.problem.dtype)) +
                           " problem cannot have with this exchange");
  }
  return {};
}

Status CheckResources(const AttentionProblem& problem,
                      const ExecutorResources& resources) {
  for (const auto& [name, given] :
       {std::pair("device", resources.device != nullptr),
        std::pair("backend", resources.backend != nullptr),
        std::pair("communicators", resources.communicators != nullptr),
        std::pair("agreement", resources.agreement != nullptr)}) {
    if (!given) return InvalidArgument(std::string(name) + " is null");
  }
  if (resources.device->memory() != resources.backend->memory()) {
    return InvalidArgument("backend " + std::string(resources.backend->name()) +
                           " does not work on the memory of device " +
                           std::string(resources.device->name()));
  }
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    SKRULL_EXEC_RETURN_IF_ERROR(resources.backend->Supports(problem, pass));
  }
  return {};
}

Status CheckTensors(const AttentionProblem& problem, int64_t rows,
                    LseOrder order, const ForwardTensors& t) {
  return CheckTensors(problem, rows, order, t.q, t.k, t.v, t.o, t.lse);
}

Status CheckTensors(const AttentionProblem& p, int64_t rows, LseOrder order,
                    const BackwardTensors& t) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      CheckTensors(p, rows, order, t.q, t.k, t.v, t.o, t.lse));
  const auto check = [&](const char* name, const Tensor& tensor,
                         int32_t heads) {
    return CheckTensor(name, tensor, p.dtype, rows, heads, p.head_dim);
  };
  SKRULL_EXEC_RETURN_IF_ERROR(check("d_o", t.d_o, p.q_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(check("dq", t.dq, p.q_heads));
  SKRULL_EXEC_RETURN_IF_ERROR(check("dk", t.dk, p.kv_heads));
  return check("dv", t.dv, p.kv_heads);
}

}  // namespace skrull::exec
