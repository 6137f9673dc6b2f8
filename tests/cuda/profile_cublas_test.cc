// Matrix products by cuBLASLt: how it fails without a GPU, and what it computes
// where there is one.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "skrull/cuda/profile/gemm.h"

namespace skrull::profile {
namespace {

using exec::DType;

// Memory of the device with these values.
class DeviceFloats {
 public:
  explicit DeviceFloats(const std::vector<float>& values)
      : bytes_(values.size() * sizeof(float)) {
    REQUIRE(cudaMalloc(&data_, bytes_) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  ~DeviceFloats() { (void)cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  void* data() const { return data_; }
  std::vector<float> Read() const {
    std::vector<float> values(bytes_ / sizeof(float));
    REQUIRE(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost) ==
            cudaSuccess);
    return values;
  }

 private:
  const size_t bytes_;
  void* data_ = nullptr;
};

void CheckAgainstDouble(Gemm* gemm, const Product& p) {
  INFO(p.m << " " << p.n << " " << p.k << " " << p.transpose_a
           << p.transpose_b);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto vector = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(random);
    return values;
  };
  const std::vector<float> a = vector(p.m * p.k);
  const std::vector<float> b = vector(p.k * p.n);
  const exec::Result<int64_t> bytes = gemm->Prepare(p);
  INFO(bytes.status().ToString());
  REQUIRE(bytes.ok());
  const DeviceFloats on_a(a);
  const DeviceFloats on_b(b);
  const DeviceFloats on_c(
      std::vector<float>(static_cast<size_t>(p.m * p.n), NAN));
  const DeviceFloats workspace(
      std::vector<float>(static_cast<size_t>(*bytes) / sizeof(float) + 1));
  REQUIRE(gemm->Multiply(p, on_a.data(), on_b.data(), on_c.data(),
                         {workspace.data(), *bytes}, {})
              .ok());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::vector<float> c = on_c.Read();
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  for (int64_t r = 0; r < p.m; ++r) {
    for (int64_t s = 0; s < p.n; ++s) {
      double sum = 0;
      for (int64_t t = 0; t < p.k; ++t) {
        sum += double{a[at(p.transpose_a ? t * p.m + r : r * p.k + t)]} *
               double{b[at(p.transpose_b ? s * p.k + t : t * p.n + s)]};
      }
      // 64 products of at most 1, each rounded twice to 2^-24.
      CHECK(std::abs(c[at(r * p.n + s)] - sum) < 1e-5);
    }
  }
}

}  // namespace

TEST_CASE("cuBLASLt: computes, or says that there is no GPU", "[profile]") {
  const GemmResult gemm = CreateGemm("cuda", SKRULL_GEMM_PLUGIN_DIR, 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    REQUIRE_FALSE(gemm.ok());
    CHECK(gemm.status().code() == exec::StatusCode::kDeviceError);
    CHECK_THAT(gemm.status().message(), Catch::StartsWith("cudaSetDevice: "));
    return;
  }
  INFO(gemm.status().ToString());
  REQUIRE(gemm.ok());
  CHECK((*gemm)->memory() == exec::MemoryKind::kCuda);
  for (const int transposed : {0, 1, 2}) {
    CheckAgainstDouble(gemm->get(), {.dtype = DType::kFloat32,
                                     .m = 24,
                                     .n = 40,
                                     .k = 64,
                                     .transpose_a = transposed == 1,
                                     .transpose_b = transposed == 2});
  }
}

}  // namespace skrull::profile
