// The portable body of the primitives: layouts of fragments as the PTX manual
// gives them, and copies that are not there before they are waited for.
#include "skrull/cuda/kernels/mma.cuh"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/half.h"

namespace skrull::exec::testing {
namespace {

using kernels::Bf16;
using kernels::Fp16;

constexpr Stream kNow{};

// One warp: c [16, 8] += a [16, 16] * b [16, 8], all row-major, through shared
// memory. `b` is stored as it is, or transposed.
template <class T>
__global__ void MultiplyKernel(const uint16_t* a, const uint16_t* b,
                               bool b_transposed, float* c) {
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 512; i += 32) {
    shared[i] = i < 256 ? a[i] : (i < 384 ? b[i - 256] : uint16_t{0});
  }
  __syncwarp();
  uint32_t fragment_a[4];
  uint32_t fragment_b[4];
  kernels::LoadMatrices(fragment_a, shared + lane % 16 * 16 + lane / 16 * 8);
  const uint16_t* stored = shared + 256;
  if (b_transposed) {  // [8, 16]: matrices at k = 0 and k = 8; the rest unused
    kernels::LoadMatrices(fragment_b,
                          stored + lane % 8 * 16 + lane / 8 % 2 * 8);
  } else {  // [16, 8]
    kernels::LoadMatricesTransposed(fragment_b, stored + lane % 16 * 8);
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) {
    sums[i] = c[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2];
  }
  kernels::Multiply<T>(sums, fragment_a, fragment_b[0], fragment_b[1]);
  for (int i = 0; i < 4; ++i) {
    c[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2] = sums[i];
  }
}

template <class T, class Storage>
void CheckMultiply(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(256), b(128), bt(128);
  for (uint16_t& value : a) value = Storage(normal(random)).bits;
  for (uint16_t& value : b) value = Storage(normal(random)).bits;
  for (size_t k = 0; k < 16; ++k) {
    for (size_t n = 0; n < 8; ++n) bt[n * 16 + k] = b[k * 8 + n];
  }
  const auto value = [](uint16_t bits) {
    Storage storage;
    storage.bits = bits;
    return double{static_cast<float>(storage)};
  };
  for (const bool transposed : {false, true}) {
    std::vector<float> c(128);
    std::iota(c.begin(), c.end(), 1.0F);
    REQUIRE(SKRULL_LAUNCH((MultiplyKernel<T>), 1, 32, 1024, kNow, a.data(),
                          transposed ? bt.data() : b.data(), transposed,
                          c.data())
                .ToString() == "OK");
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 8; ++n) {
        double want = static_cast<double>(m * 8 + n + 1);
        for (size_t k = 0; k < 16; ++k) {
          want += value(a[m * 16 + k]) * value(b[k * 8 + n]);
        }
        CHECK(c[m * 8 + n] == Approx(want).epsilon(1e-5));
      }
    }
  }
}

// Thread t copies four words to its own place in two groups, and writes what it
// sees there at each stage: [stage][thread][word].
__global__ void CopyKernel(const uint32_t* from, uint32_t* seen) {
  SKRULL_DYNAMIC_SHARED(uint32_t, shared);
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t* own = shared + 8 * thread;
  const auto look = [&](int stage) {
    for (int i = 0; i < 8; ++i) seen[(stage * 4 + thread) * 8 + i] = own[i];
  };
  for (int i = 0; i < 8; ++i) own[i] = 7;
  kernels::CopyAsync16(own, from + 4 * thread, true);
  kernels::CommitCopies();
  kernels::CopyAsync4(own + 4, from + thread, true);
  kernels::CopyAsync4(own + 5, nullptr, false);
  kernels::CommitCopies();
  kernels::CopyAsync4(own + 6, from, true);  // in no group
  look(0);
  kernels::WaitForCopies<1>();
  look(1);
  kernels::WaitForCopies<0>();
  look(2);
}

__global__ void MisalignedCopyKernel(const uint16_t* from) {
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  kernels::CopyAsync16(shared + 1, from, true);
}

__global__ void MisalignedLoadKernel() {
  SKRULL_DYNAMIC_SHARED(uint16_t, shared);
  uint32_t r[4];
  kernels::LoadMatrices(r, shared + 4);
}

}  // namespace

TEST_CASE("mma: products of a warp, loaded both ways", "[flash][mma]") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    CheckMultiply<Bf16, BFloat16>(seed);
    CheckMultiply<Fp16, Float16>(seed);
  }
}

TEST_CASE("mma: a copy is there after the wait for its group", "[flash][mma]") {
  alignas(16) uint32_t from[16];
  std::iota(std::begin(from), std::end(from), 100U);
  std::vector<uint32_t> seen(3 * 4 * 8);
  REQUIRE(SKRULL_LAUNCH((CopyKernel), 1, 4, 4 * 32, kNow, &from[0], seen.data())
              .ToString() == "OK");
  constexpr uint32_t kUnknown = ~0U;
  for (uint32_t t = 0; t < 4; ++t) {
    const uint32_t a = 100 + 4 * t;
    const std::vector<uint32_t> want[] = {
        {kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown,
         7},
        {a, a + 1, a + 2, a + 3, kUnknown, kUnknown, kUnknown, 7},
        {a, a + 1, a + 2, a + 3, 100 + t, 0, kUnknown, 7}};
    for (size_t stage = 0; stage < 3; ++stage) {
      const auto begin =
          seen.begin() + static_cast<ptrdiff_t>((stage * 4 + t) * 8);
      CHECK(std::vector<uint32_t>(begin, begin + 8) == want[stage]);
    }
  }
}

TEST_CASE("mma: addresses must be aligned", "[flash][mma]") {
  alignas(16) uint16_t from[8] = {};
  const Status copy = SKRULL_LAUNCH((MisalignedCopyKernel), 1, 1, 64, kNow,
                                    static_cast<const uint16_t*>(from));
  CHECK(copy.code() == StatusCode::kInternal);
  CHECK(copy.message().find("copy is not aligned") != std::string::npos);
  const Status load = SKRULL_LAUNCH((MisalignedLoadKernel), 1, 32, 64, kNow);
  CHECK(load.code() == StatusCode::kInternal);
  CHECK(load.message().find("row is not aligned") != std::string::npos);
}

TEST_CASE("mma: pairs and powers", "[flash][mma]") {
  for (const auto& [first, second] :
       {std::pair(1.0F, -2.5F), std::pair(0.0F, 1e-3F)}) {
    const float2 b =
        kernels::UnpackPair<Bf16>(kernels::PackPair<Bf16>(first, second));
    CHECK(b.x == static_cast<float>(BFloat16(first)));
    CHECK(b.y == static_cast<float>(BFloat16(second)));
    const float2 f =
        kernels::UnpackPair<Fp16>(kernels::PackPair<Fp16>(first, second));
    CHECK(f.x == static_cast<float>(Float16(first)));
    CHECK(f.y == static_cast<float>(Float16(second)));
  }
  CHECK(kernels::PackPair<Bf16>(1, 0) == 0x3F80U);  // the first is low
  CHECK(kernels::PackPair<Fp16>(0, 1) == 0x3C000000U);
  CHECK(kernels::Exp2(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(kernels::Exp2(3) == 8);
}

}  // namespace skrull::exec::testing
