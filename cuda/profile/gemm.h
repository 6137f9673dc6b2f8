// Matrix products of linear layers, so that they can be timed on the same
// device and stream as attention.
#ifndef SKRULL_CUDA_PROFILE_GEMM_H_
#define SKRULL_CUDA_PROFILE_GEMM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::profile {

// C := op(A) op(B), matrices row-major without gaps. op(A) is [m, k] and A as
// it lies [m, k], or [k, m] if transpose_a; op(B) is [k, n] and B [k, n], or
// [n, k] if transpose_b; C is [m, n]. Of A and B at most one is transposed.
// Sums are kept in AccumulatorOf(dtype). Sizes >= 1.
struct Product {
  exec::DType dtype = exec::DType::kBFloat16;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;

  friend bool operator==(const Product&, const Product&) = default;
};

// INVALID_ARGUMENT naming what breaks the rules above. Inline, so that a shared
// object needs nothing of this library.
inline exec::Status CheckProduct(const Product& product) {
  for (const auto& [name, value] :
       {std::pair("m", product.m), std::pair("n", product.n),
        std::pair("k", product.k)}) {
    if (value < 1) {
      return exec::InvalidArgument(std::string(name) +
                                   " of a matrix product is " +
                                   std::to_string(value));
    }
  }
  if (product.transpose_a && product.transpose_b) {
    return exec::InvalidArgument("both matrices of a product are transposed");
  }
  return {};
}

// Used by one thread at a time.
class Gemm {
 public:
  virtual ~Gemm() = default;

  virtual std::string_view name() const = 0;
  virtual exec::MemoryKind memory() const = 0;

  // Chooses how to compute products of this shape, and returns the bytes of
  // workspace of such a call. Errors: INVALID_ARGUMENT; UNSUPPORTED naming what
  // is; PLAN_BUILD_FAILED.
  virtual exec::Result<int64_t> Prepare(const Product& product) = 0;

  // Asynchronous on the stream. `a` and `b` are only read; every element of `c`
  // is overwritten, and it overlaps neither. REQUIRES: Prepare for the same
  // product; a workspace of its size, 256-byte aligned memory of the device,
  // as a, b and c.
  virtual exec::Status Multiply(const Product& product, const void* a,
                                const void* b, void* c,
                                exec::Workspace workspace,
                                exec::Stream stream) = 0;
};

// For a device of this name (Device::name()): "cpu" is built in and computes
// float32 with the example trainer's loops (docs/decisions/profile-gemm.md);
// for others libskrull_gemm_<name>.so is opened, in `directory`, or where the
// dynamic linker looks if that is empty, and creates one for the device with
// this ordinal. Errors: NOT_FOUND saying what is missing; UNSUPPORTED for a
// library of another interface version; what the library's creation returns.
exec::Result<std::unique_ptr<Gemm>> CreateGemm(const std::string& name,
                                               const std::string& directory,
                                               int32_t ordinal);

// What such a library exports, through SKRULL_PROFILE_DEFINE_GEMM. Grows with
// every change of this header and what it includes.
inline constexpr int32_t kGemmInterfaceVersion = 1;

using GemmResult = exec::Result<std::unique_ptr<Gemm>>;

// In one source file of the library; `create` is a function
// GemmResult(int32_t ordinal), which throws nothing.
#define SKRULL_PROFILE_DEFINE_GEMM(create)                             \
  extern "C" {                                                         \
  __attribute__((visibility(                                           \
      "default"))) extern const int32_t skrull_gemm_interface_version; \
  const int32_t skrull_gemm_interface_version =                        \
      ::skrull::profile::kGemmInterfaceVersion;                        \
  __attribute__((visibility("default"))) void skrull_create_gemm(      \
      int32_t ordinal, ::skrull::profile::GemmResult* result) {        \
    *result = create(ordinal);                                         \
  }                                                                    \
  }                                                                    \
  static_assert(true, "takes the semicolon")

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_GEMM_H_
