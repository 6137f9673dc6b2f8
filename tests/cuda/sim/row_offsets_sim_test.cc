// The CUDA row kernels on tensors of more than 2^31 elements.
#include <sys/mman.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

#include "skrull/cuda/kernels/row_jobs.h"
#include "skrull/cuda/kernels/row_kernels.h"

namespace skrull::exec::testing {
namespace {

// Memory that costs nothing before it is touched.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~SparseMemory() { munmap(data_, bytes_); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  void* data() const { return data_; }

 private:
  const size_t bytes_;
  void* const data_;
};

// Both rows of a list, where the host and the kernels find it.
RunList<CopyRun> ListOf(const std::array<CopyRun, 2>* runs) {
  return {runs->data(), runs->data(), 2, 2};
}

}  // namespace

TEST_CASE("Row kernels of CUDA: offsets have 64 bits", "[kernels]") {
  // One row more than 2^31 elements.
  constexpr int32_t kRows = 262144 + 1, kHeads = 64, kDim = 128;
  constexpr int64_t kElements = int64_t{kRows} * kHeads * kDim;
  const internal::RowSide side{.row_stride = int64_t{kHeads} * kDim,
                               .head_stride = kDim};
  CHECK(internal::OffsetOf(side, kRows - 1, kHeads - 1) == kElements - kDim);
  const internal::RowSide head_major{.row_stride = kDim,
                                     .head_stride = int64_t{kRows} * kDim};
  CHECK(internal::OffsetOf(head_major, kRows - 1, kHeads - 1) ==
        kElements - kDim);

  // Rows at both ends of 4 GiB, dense and head-major.
  const SparseMemory memory(size_t{kElements} * 2);
  std::array<uint16_t, 2 * kHeads * kDim> rows{}, back{};
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(i);
  Tensor large =
      DenseTensor(memory.data(), DType::kBFloat16, kRows, kHeads, kDim);
  for (const bool is_head_major : {false, true}) {
    if (is_head_major) {
      large.row_stride = kDim;
      large.head_stride = int64_t{kRows} * kDim;
    }
    const auto small = [&](auto& from) {
      return DenseTensor(from.data(), DType::kBFloat16, 2, kHeads, kDim);
    };
    const std::array<CopyRun, 2> out = {{{0, kRows - 1, 1, 1}, {1, 0, 0, 1}}};
    const std::array<CopyRun, 2> in = {{{0, 1, kRows - 1, 1}, {1, 0, 0, 1}}};
    const RowPair write{large, small(rows)};
    const RowPair read{small(back), large};
    back.fill(0);
    REQUIRE(internal::LaunchGatherRows({&write, 1}, ListOf(&out), Stream())
                .ToString() == "OK");
    REQUIRE(internal::LaunchGatherRows({&read, 1}, ListOf(&in), Stream())
                .ToString() == "OK");
    CHECK(back == rows);
    CHECK(static_cast<uint16_t*>(memory.data())[kElements - 1] == rows.back());
  }
}

}  // namespace skrull::exec::testing
