// The attention kernels touch nothing behind their tensors: those end where a
// page begins that nobody may read or write.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "skrull/cuda/attention/cuda/cuda_attention.h"
#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec::testing {
namespace {

// Dense rows, of small random values, whose last byte is the last of a page.
// An access behind it ends the program.
class GuardedRows {
 public:
  GuardedRows(DType dtype, int64_t rows, int32_t heads, int32_t dim) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const auto bytes = static_cast<size_t>(rows * heads * dim * SizeOf(dtype));
    const size_t pages = (bytes + page - 1) / page * page;
    mapped_ = pages + page;
    memory_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(mprotect(memory_ + pages, page, PROT_NONE) == 0);
    view_ = DenseTensor(memory_ + pages - bytes, dtype, rows, heads, dim);
    if (dtype != DType::kBFloat16) return;
    std::mt19937_64 random(1);
    auto* values = static_cast<BFloat16*>(view_.data);
    for (size_t i = 0; i < bytes / 2; ++i) {
      values[i] = BFloat16(static_cast<float>(random() % 9) - 4);
    }
  }
  ~GuardedRows() { munmap(memory_, mapped_); }
  GuardedRows(const GuardedRows&) = delete;
  GuardedRows& operator=(const GuardedRows&) = delete;

  const Tensor& view() const { return view_; }

 private:
  char* memory_ = nullptr;
  size_t mapped_ = 0;
  Tensor view_;
};

}  // namespace

TEST_CASE("flash guard page: nothing behind a tensor is touched",
          "[flash][guard]") {
  constexpr int32_t kQueries = 33;
  constexpr int32_t kKeys = 70;
  for (const int32_t dim : {64, 128}) {
    for (const Mask mask : {Mask::kCausalBottomRight, Mask::kFull}) {
      const AttentionProblem problem = {.dtype = DType::kBFloat16,
                                        .q_heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = dim,
                                        .scale = 0.125};
      const int32_t cu_q[] = {0, kQueries};
      const int32_t cu_kv[] = {0, kKeys};
      const Segments segments = {.bounds = {.count = 1,
                                            .max_q = kQueries,
                                            .max_kv = kKeys,
                                            .total_q = kQueries,
                                            .total_kv = kKeys,
                                            .mask = mask},
                                 .cu_q = cu_q,
                                 .cu_kv = cu_kv,
                                 .device_cu_q = cu_q,
                                 .device_cu_kv = cu_kv};
      const GuardedRows q(DType::kBFloat16, kQueries, 2, dim);
      const GuardedRows k(DType::kBFloat16, kKeys, 1, dim);
      const GuardedRows v(DType::kBFloat16, kKeys, 1, dim);
      const GuardedRows o(DType::kBFloat16, kQueries, 2, dim);
      const GuardedRows d_o(DType::kBFloat16, kQueries, 2, dim);
      const GuardedRows lse(DType::kFloat32, kQueries, 2, 1);
      const GuardedRows dq(DType::kBFloat16, kQueries, 2, dim);
      const GuardedRows dk(DType::kBFloat16, kKeys, 1, dim);
      const GuardedRows dv(DType::kBFloat16, kKeys, 1, dim);
      CudaAttention backend(MemoryKind::kHost);
      const int64_t bytes =
          *backend.Prepare(problem, segments.bounds, Pass::kBackward);
      const GuardedRows workspace(DType::kFloat32, bytes / 4, 1, 1);
      CHECK(backend
                .Forward({.problem = problem,
                          .segments = segments,
                          .q = q.view(),
                          .k = k.view(),
                          .v = v.view(),
                          .o = o.view(),
                          .lse = lse.view()},
                         {}, {})
                .ToString() == "OK");
      CHECK(backend
                .Backward({.problem = problem,
                           .segments = segments,
                           .q = q.view(),
                           .k = k.view(),
                           .v = v.view(),
                           .o = o.view(),
                           .d_o = d_o.view(),
                           .lse = lse.view(),
                           .dq = dq.view(),
                           .dk = dk.view(),
                           .dv = dv.view()},
                          {workspace.view().data, bytes}, {})
                .ToString() == "OK");
    }
  }
}

}  // namespace skrull::exec::testing
