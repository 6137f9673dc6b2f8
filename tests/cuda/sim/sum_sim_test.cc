// CUDA's sum under cuda/sim against the host's: the same bits.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/rank_sum.h"
#include "skrull/cuda/kernels/sum.h"
#include "skrull/cuda/sim/launch.h"

namespace skrull::exec::testing {
namespace {

constexpr Stream kNow{};

// Sums `addend_count` arrays that begin `shift` elements behind an aligned
// address.
template <class T>
void CheckSums(DType dtype, int addend_count, int64_t count, int64_t shift,
               uint64_t seed) {
  CAPTURE(addend_count, count, shift, seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto size = static_cast<size_t>(count + shift);
  std::vector<std::vector<T>> arrays;
  std::vector<const void*> addends;
  for (int k = 0; k < addend_count; ++k) {
    std::vector<T>& array = arrays.emplace_back(size);
    for (T& value : array) value = ConvertHost<T>(normal(random));
    addends.push_back(array.data() + shift);
  }
  const T guard = ConvertHost<T>(-7.0);
  std::vector<T> got(size + 1, guard);
  std::vector<T> want(size + 1, guard);
  const Status status =
      internal::LaunchSum(got.data() + shift, addends, count, dtype, kNow);
  REQUIRE(status.ToString() == "OK");
  SumRanks<T>(addends, 0, count, want.data() + shift);
  REQUIRE(std::memcmp(got.data(), want.data(), (size + 1) * sizeof(T)) == 0);
}

}  // namespace

TEST_CASE("Sum of CUDA: as the host", "[kernels]") {
  uint64_t seed = 0;
  for (const int addends : {1, 2, 8, kMaxAddends}) {
    for (const int64_t count : {0, 1, 7, 8, 256, 300, 2051}) {
      for (const int64_t shift : {0, 1}) {
        sim::SetOrderSeed(++seed);
        CheckSums<Float16>(DType::kFloat16, addends, count, shift, seed);
        CheckSums<BFloat16>(DType::kBFloat16, addends, count, shift, seed);
        CheckSums<float>(DType::kFloat32, addends, count, shift, seed);
        CheckSums<double>(DType::kFloat64, addends, count, shift, seed);
      }
    }
  }
}

TEST_CASE("Sum of CUDA: what the kernel could not take is refused",
          "[kernels]") {
  float value = 0;
  const std::vector<const void*> addends = {&value};
  CHECK(internal::LaunchSum(&value, addends, int64_t{1} << 36, DType::kFloat32,
                            kNow)
            .message() == "a sum of 68719476736 elements");
  CHECK(internal::LaunchSum(nullptr, addends, 1, DType::kFloat32, kNow)
            .message() == "a sum's dst has no memory, or is not aligned");
}

}  // namespace skrull::exec::testing
