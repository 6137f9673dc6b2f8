// libskrull_gemm_cuda.so: matrix products by cuBLASLt, which is what training
// frameworks call for linear layers.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/profile/gemm.h"

namespace skrull::profile {
namespace {

using exec::DType;
using exec::Result;
using exec::Status;
using exec::StatusCode;

// Workspace that a kernel may ask for: what cuBLAS itself takes on sm_90 and
// newer, and more than it takes elsewhere.
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;

Status ToStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const StatusCode code =
      status == CUBLAS_STATUS_ALLOC_FAILED    ? StatusCode::kOutOfMemory
      : status == CUBLAS_STATUS_NOT_SUPPORTED ? StatusCode::kPlanBuildFailed
                                              : StatusCode::kDeviceError;
  return {code, std::string(what) + ": " + cublasLtGetStatusString(status)};
}

Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return {StatusCode::kDeviceError,
          std::string(what) + ": " + cudaGetErrorString(error)};
}

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroyer {
  void operator()(Handle handle) const { (void)kDestroy(handle); }
};
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
using Owned =
    std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, kDestroy>>;

using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference =
    Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kFloat64:
      break;
  }
  return CUDA_R_64F;
}

// How products of one shape are computed.
struct Plan {
  Product product;
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  int64_t workspace_bytes = 0;
};

Status MakeLayout(DType dtype, int64_t rows, int64_t columns, Layout* layout) {
  cublasLtMatrixLayout_t made = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(
      ToStatus(cublasLtMatrixLayoutCreate(&made, TypeOf(dtype),
                                          static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows),
               "cublasLtMatrixLayoutCreate"));
  layout->reset(made);
  return {};
}

// cuBLAS's matrices are column-major. A row-major matrix is its transpose
// there, and the transpose of C = A B is B' A': so its left factor is our B,
// its right one our A, and which of them is transposed stays as it is.
Status Describe(const Product& p, Plan* plan) {
  const bool is_double = p.dtype == DType::kFloat64;
  cublasLtMatmulDesc_t operation = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(ToStatus(
      cublasLtMatmulDescCreate(
          &operation, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
          is_double ? CUDA_R_64F : CUDA_R_32F),
      "cublasLtMatmulDescCreate"));
  plan->operation.reset(operation);
  for (const auto& [attribute, transposed] :
       {std::pair(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b),
        std::pair(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a)}) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    SKRULL_EXEC_RETURN_IF_ERROR(
        ToStatus(cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                                sizeof(value)),
                 "cublasLtMatmulDescSetAttribute"));
  }
  SKRULL_EXEC_RETURN_IF_ERROR(p.transpose_b
                                  ? MakeLayout(p.dtype, p.k, p.n, &plan->b)
                                  : MakeLayout(p.dtype, p.n, p.k, &plan->b));
  SKRULL_EXEC_RETURN_IF_ERROR(p.transpose_a
                                  ? MakeLayout(p.dtype, p.m, p.k, &plan->a)
                                  : MakeLayout(p.dtype, p.k, p.m, &plan->a));
  return MakeLayout(p.dtype, p.n, p.m, &plan->c);
}

// The kernel that cuBLAS expects to be fastest.
Status Choose(cublasLtHandle_t library, Plan* plan) {
  cublasLtMatmulPreference_t made = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(ToStatus(cublasLtMatmulPreferenceCreate(&made),
                                       "cublasLtMatmulPreferenceCreate"));
  const Preference preference(made);
  SKRULL_EXEC_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulPreferenceSetAttribute(
                   made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                   &kMostWorkspaceBytes, sizeof(kMostWorkspaceBytes)),
               "cublasLtMatmulPreferenceSetAttribute"));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  SKRULL_EXEC_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulAlgoGetHeuristic(
                   library, plan->operation.get(), plan->b.get(), plan->a.get(),
                   plan->c.get(), plan->c.get(), made, 1, &found, &count),
               "cublasLtMatmulAlgoGetHeuristic"));
  if (count == 0) {
    return {StatusCode::kPlanBuildFailed,
            "cuBLAS has no kernel for this product"};
  }
  plan->algorithm = found.algo;
  plan->workspace_bytes = static_cast<int64_t>(found.workspaceSize);
  return {};
}

class CublasGemm final : public Gemm {
 public:
  CublasGemm(int32_t ordinal, Library library)
      : ordinal_(ordinal), library_(std::move(library)) {}

  std::string_view name() const override { return "cublasLt"; }
  exec::MemoryKind memory() const override { return exec::MemoryKind::kCuda; }

  Result<int64_t> Prepare(const Product& product) override {
    const Result<const Plan*> plan = PlanOf(product);
    SKRULL_EXEC_RETURN_IF_ERROR(plan.status());
    return (*plan)->workspace_bytes;
  }

  Status Multiply(const Product& product, const void* a, const void* b, void* c,
                  exec::Workspace workspace, exec::Stream stream) override {
    const Result<const Plan*> found = PlanOf(product);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    const Plan& plan = **found;
    if (workspace.bytes < plan.workspace_bytes) {
      return exec::InvalidArgument(
          "a workspace of " + std::to_string(workspace.bytes) +
          " bytes, where " + std::to_string(plan.workspace_bytes) +
          " are needed");
    }
    // In the type of the scale, float64 for float64.
    const float one[] = {1, 0};
    const double double_one[] = {1, 0};
    const bool is_double = product.dtype == DType::kFloat64;
    const void* const alpha = is_double ? static_cast<const void*>(double_one)
                                        : static_cast<const void*>(one);
    const void* const beta = is_double
                                 ? static_cast<const void*>(double_one + 1)
                                 : static_cast<const void*>(one + 1);
    return ToStatus(
        cublasLtMatmul(library_.get(), plan.operation.get(), alpha, b,
                       plan.b.get(), a, plan.a.get(), beta, c, plan.c.get(), c,
                       plan.c.get(), &plan.algorithm, workspace.data,
                       static_cast<size_t>(plan.workspace_bytes),
                       static_cast<cudaStream_t>(stream.handle)),
        "cublasLtMatmul");
  }

 private:
  // Also makes the device the calling thread's.
  Result<const Plan*> PlanOf(const Product& product) {
    SKRULL_EXEC_RETURN_IF_ERROR(
        ToStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
    for (const std::unique_ptr<Plan>& plan : plans_) {
      if (plan->product == product) {
        return static_cast<const Plan*>(plan.get());
      }
    }
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProduct(product));
    auto plan = std::make_unique<Plan>();
    plan->product = product;
    SKRULL_EXEC_RETURN_IF_ERROR(Describe(product, plan.get()));
    SKRULL_EXEC_RETURN_IF_ERROR(Choose(library_.get(), plan.get()));
    plans_.push_back(std::move(plan));
    return static_cast<const Plan*>(plans_.back().get());
  }

  const int32_t ordinal_;
  const Library library_;
  std::vector<std::unique_ptr<Plan>> plans_;  // tens: a few for each row count
};

GemmResult CreateCublasGemm(int32_t ordinal) {
  SKRULL_EXEC_RETURN_IF_ERROR(
      ToStatus(cudaSetDevice(ordinal), "cudaSetDevice"));
  cublasLtHandle_t library = nullptr;
  SKRULL_EXEC_RETURN_IF_ERROR(
      ToStatus(cublasLtCreate(&library), "cublasLtCreate"));
  return std::unique_ptr<Gemm>(
      std::make_unique<CublasGemm>(ordinal, Library(library)));
}

}  // namespace

SKRULL_PROFILE_DEFINE_GEMM(CreateCublasGemm);

}  // namespace skrull::profile
