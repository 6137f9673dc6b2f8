#include "skrull/cuda/profile/cpu_gemm.h"

#include <algorithm>
#include <string>

#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/profile/matrix_product.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;

// Bytes of B as it lies, transposed.
int64_t TransposedBytes(const Product& p) {
  return p.transpose_b ? p.k * p.n * static_cast<int64_t>(sizeof(float)) : 0;
}

void Compute(const Product& p, const float* a, const float* b, float* c,
             float* transposed) {
  std::fill_n(c, p.m * p.n, 0.0F);
  if (p.transpose_b) {
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.k; ++i)
        transposed[i * p.n + j] = b[j * p.k + i];
    }
    b = transposed;
  }
  if (p.transpose_a) {
    AddProduct(a, 1, p.m, b, p.m, p.k, p.n, c);
  } else {
    AddProduct(a, p.k, 1, b, p.m, p.k, p.n, c);
  }
}

class CpuGemm final : public Gemm {
 public:
  std::string_view name() const override { return "cpu"; }
  exec::MemoryKind memory() const override { return exec::MemoryKind::kHost; }

  Result<int64_t> Prepare(const Product& product) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProduct(product));
    if (product.dtype != exec::DType::kFloat32) {
      return Status(exec::StatusCode::kUnsupported,
                    "matrix products on the cpu are float32, not " +
                        std::string(DTypeName(product.dtype)));
    }
    return TransposedBytes(product);
  }

  Status Multiply(const Product& product, const void* a, const void* b, void* c,
                  exec::Workspace workspace, exec::Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(Prepare(product).status());
    if (workspace.bytes < TransposedBytes(product)) {
      return exec::InvalidArgument(
          "a workspace of " + std::to_string(workspace.bytes) +
          " bytes, where " + std::to_string(TransposedBytes(product)) +
          " are needed");
    }
    return exec::EnqueueOnHost(
        stream, [=, to = workspace.data](const Status& device) -> Status {
          if (device.ok()) {
            Compute(product, static_cast<const float*>(a),
                    static_cast<const float*>(b), static_cast<float*>(c),
                    static_cast<float*>(to));
          }
          return {};
        });
  }
};

}  // namespace

std::unique_ptr<Gemm> CreateCpuGemm() { return std::make_unique<CpuGemm>(); }

}  // namespace skrull::profile
