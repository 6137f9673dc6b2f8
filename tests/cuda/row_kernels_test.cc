// The host's row kernels, and its 16-bit numbers.
#include "skrull/cuda/cpu/row_kernels.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "skrull/cuda/cpu/half.h"
#include "skrull/tests/cuda/host_tensor.h"

namespace skrull::exec::testing {
namespace {

// The nearest of all 16-bit numbers, ties to the even one, by search.
template <class Half>
uint16_t NearestBits(float value) {
  uint16_t best = 0;
  double best_miss = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x8000U; ++bits) {
    Half half;
    half.bits = static_cast<uint16_t>(bits);
    double candidate = static_cast<float>(half);
    if (std::isnan(candidate)) continue;
    // Infinity stands where the next number would be.
    if (std::isinf(candidate)) {
      Half last;
      last.bits = static_cast<uint16_t>(bits - 1);
      Half before;
      before.bits = static_cast<uint16_t>(bits - 2);
      candidate = 2 * double{static_cast<float>(last)} -
                  double{static_cast<float>(before)};
    }
    const double miss = std::abs(candidate - std::abs(double{value}));
    if (miss < best_miss || (miss == best_miss && bits % 2 == 0)) {
      best = static_cast<uint16_t>(bits);
      best_miss = miss;
    }
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000U : 0U));
}

template <class Half>
void CheckHalf(float smallest, float largest) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {  // back and forth
    Half half;
    half.bits = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(half);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(static_cast<float>(Half(value))));
    } else {
      REQUIRE(Half(value).bits == bits);
    }
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(std::log2(smallest),
                                                 std::log2(largest));
  for (int i = 0; i < 40; ++i) {
    float value = std::exp2(exponent(random));
    if (i % 2 == 0) value = -value;
    INFO(value);
    REQUIRE(Half(value).bits == NearestBits<Half>(value));
    // Half way to the next: a tie.
    Half low(value);
    Half high = low;
    ++high.bits;
    const float tie = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    if (std::isfinite(tie)) {
      REQUIRE(Half(tie).bits == (low.bits % 2 == 0 ? low.bits : high.bits));
    }
  }
}

HostTensor Filled(DType dtype, int64_t rows, int32_t heads, int32_t dim,
                  int32_t gap, uint64_t seed) {
  HostTensor tensor(dtype, rows, heads, dim, gap);
  std::mt19937_64 random(seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t h = 0; h < heads; ++h) {
      for (int32_t c = 0; c < dim; ++c) {
        // Exact in every type, and so are sums of two.
        tensor.Set(r, h, c, static_cast<double>(random() % 64) / 8 - 4);
      }
    }
  }
  return tensor;
}

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kFloat64};

}  // namespace

TEST_CASE("Half: bfloat16 rounds to the nearest", "[row_kernels]") {
  CheckHalf<BFloat16>(1e-38F, 3e38F);
}

TEST_CASE("Half: float16 rounds to the nearest", "[row_kernels]") {
  CheckHalf<Float16>(1e-9F, 1e5F);
  CHECK(Float16(65519.99F).bits == 0x7BFF);
  CHECK(Float16(65520.0F).bits == 0x7C00);
  CHECK(Float16(-std::numeric_limits<float>::infinity()).bits == 0xFC00);
}

TEST_CASE("Row kernels: gather between all types", "[row_kernels]") {
  const std::vector<CopyRun> runs = {{0, 4, 1, 2}, {2, 0, 5, 1}};
  for (const DType to : kTypes) {
    for (const DType from : kTypes) {
      for (const int32_t gap : {0, 3}) {
        const HostTensor src = Filled(from, 6, 2, 5, gap, 1);
        const HostTensor dst(to, 6, 2, 5, gap);
        GatherRowsOnHost({dst.view(), src.view()}, runs);
        for (int32_t h = 0; h < 2; ++h) {
          for (int32_t c = 0; c < 5; ++c) {
            CHECK(dst.Get(4, h, c) == src.Get(1, h, c));
            CHECK(dst.Get(5, h, c) == src.Get(2, h, c));
            CHECK(dst.Get(0, h, c) == src.Get(5, h, c));
            CHECK(std::isnan(dst.Get(1, h, c)));  // no run names it
          }
        }
        CHECK(dst.GapsAreUntouched());
      }
    }
  }
}

TEST_CASE("Row kernels: fold adds what is there", "[row_kernels]") {
  const std::vector<FoldRun> runs = {
      {0, 2, 1, 3}, {2, 1, -1, 0}, {3, 1, 5, -1}, {4, 2, -1, -1}};
  for (const DType to : kTypes) {
    for (const DType from : kTypes) {
      const HostTensor src = Filled(from, 6, 2, 3, 1, 2);
      const HostTensor dst(to, 6, 2, 3, 2);
      FoldRowsOnHost({dst.view(), src.view()}, runs);
      for (int32_t h = 0; h < 2; ++h) {
        for (int32_t c = 0; c < 3; ++c) {
          CHECK(dst.Get(0, h, c) == src.Get(1, h, c) + src.Get(3, h, c));
          CHECK(dst.Get(1, h, c) == src.Get(2, h, c) + src.Get(4, h, c));
          CHECK(dst.Get(2, h, c) == src.Get(0, h, c));
          CHECK(dst.Get(3, h, c) == src.Get(5, h, c));
          CHECK(dst.Get(4, h, c) == 0);
          CHECK(dst.Get(5, h, c) == 0);
        }
      }
      CHECK(dst.GapsAreUntouched());
    }
  }
}

TEST_CASE("Row kernels: add", "[row_kernels]") {
  for (const DType from : kTypes) {
    const HostTensor src = Filled(from, 4, 2, 3, 1, 3);
    const HostTensor old = Filled(AccumulatorOf(from), 4, 2, 3, 0, 4);
    const HostTensor dst = Filled(AccumulatorOf(from), 4, 2, 3, 0, 4);
    AddRowsOnHost({dst.view(), src.view()}, std::vector<CopyRun>{{0, 2, 0, 2}});
    for (int32_t h = 0; h < 2; ++h) {
      for (int32_t c = 0; c < 3; ++c) {
        CHECK(dst.Get(1, h, c) == old.Get(1, h, c));
        CHECK(dst.Get(2, h, c) == old.Get(2, h, c) + src.Get(0, h, c));
        CHECK(dst.Get(3, h, c) == old.Get(3, h, c) + src.Get(1, h, c));
      }
    }
  }
}

TEST_CASE("Row kernels: merge weighs by the sums of exponentials",
          "[row_kernels]") {
  const double none = -std::numeric_limits<double>::infinity();
  const auto merge = [&](double lse, double o, double lse_part, double part) {
    HostTensor sum(DType::kFloat64, 1, 1, 1);
    HostTensor sum_lse(DType::kFloat64, 1, 1, 1);
    HostTensor add(DType::kFloat64, 1, 1, 1);
    HostTensor add_lse(DType::kFloat64, 1, 1, 1);
    sum.Set(0, 0, 0, o);
    sum_lse.Set(0, 0, 0, lse);
    add.Set(0, 0, 0, part);
    add_lse.Set(0, 0, 0, lse_part);
    MergeAttentionOnHost({.o = sum.view(),
                          .lse = sum_lse.view(),
                          .o_part = add.view(),
                          .lse_part = add_lse.view()},
                         std::vector<CopyRun>{{0, 0, 0, 1}});
    return std::pair(sum_lse.Get(0, 0, 0), sum.Get(0, 0, 0));
  };
  // One key of weight e^0 and value 4, three of weight e^0 and value 8.
  const auto [lse, o] = merge(0, 4, std::log(3.0), 8);
  CHECK(lse == Approx(std::log(4.0)));
  CHECK(o == Approx(7));
  // Large sums do not overflow.
  CHECK(merge(1000, 2, 1000, 4).second == Approx(3));
  CHECK(merge(-1000, 2, 1000, 4) == std::pair(1000.0, 4.0));
  // Without keys, O is not read.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(merge(none, nan, 5, 3) == std::pair(5.0, 3.0));
  CHECK(merge(5, 3, none, nan) == std::pair(5.0, 3.0));
}

}  // namespace skrull::exec::testing
