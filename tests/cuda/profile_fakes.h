// What the tests of skrull-profile measure instead of a machine.
#ifndef SKRULL_TESTS_CUDA_PROFILE_FAKES_H_
#define SKRULL_TESTS_CUDA_PROFILE_FAKES_H_

#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/profile/gemm.h"

namespace skrull::profile {

inline const ModelShape kSmallModel = {.hidden_size = 12,
                                       .layer_count = 3,
                                       .attention_head_count = 4,
                                       .kv_head_count = 2,
                                       .head_dim = 8,
                                       .intermediate_size = 20,
                                       .vocab_size = 33};

// A stream of a CPU device of its own.
class TestStream {
 public:
  TestStream()
      : stream_(*device_.CreateStream(exec::StreamPriority::kNormal)) {}
  ~TestStream() { device_.DestroyStream(stream_); }
  exec::CpuDevice* device() { return &device_; }
  exec::Stream get() const { return stream_; }

 private:
  exec::CpuDevice device_;
  exec::Stream stream_;
};

// Records products instead of computing them.
class RecordingGemm final : public Gemm {
 public:
  std::string_view name() const override { return "recording"; }
  exec::MemoryKind memory() const override { return exec::MemoryKind::kHost; }
  exec::Result<int64_t> Prepare(const Product& product) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProduct(product));
    return int64_t{64};
  }
  exec::Status Multiply(const Product& product, const void*, const void*, void*,
                        exec::Workspace workspace, exec::Stream) override {
    CHECK(workspace.bytes >= 64);
    products.push_back(product);
    return failure;
  }

  double Flops() const {
    double flops = 0;
    for (const Product& p : products) {
      flops += 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
               static_cast<double>(p.k);
    }
    return flops;
  }

  std::vector<Product> products;
  exec::Status failure;
};

}  // namespace skrull::profile

#endif  // SKRULL_TESTS_CUDA_PROFILE_FAKES_H_
