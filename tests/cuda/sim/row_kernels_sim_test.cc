// The CUDA row kernels under cuda/sim against those of the host: the same bits,
// whatever the types, strides, alignment and order of threads.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/row_kernels.h"
#include "skrull/cuda/kernels/row_jobs.h"
#include "skrull/cuda/kernels/row_kernels.h"
#include "skrull/cuda/sim/launch.h"
#include "skrull/tests/cuda/host_tensor.h"

namespace skrull::exec::testing {
namespace {

constexpr Stream kNow{};
constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kFloat64};

int32_t Pick(std::mt19937_64* random, int32_t low, int32_t high) {
  return std::uniform_int_distribution<int32_t>(low, high)(*random);
}

// Ordinary values, and those that rounding and sums treat apart.
double RandomValue(std::mt19937_64* random) {
  constexpr double kSpecial[] = {0.0,
                                 -0.0,
                                 65520.0,
                                 -65519.0,
                                 0x1p-24,
                                 0x1.8p-25,
                                 0x1p-133,
                                 1e300,
                                 0x1.01p0,
                                 0x1.03p0,
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity()};
  if (Pick(random, 0, 15) == 0) {
    return kSpecial[Pick(random, 0,
                         static_cast<int32_t>(std::size(kSpecial)) - 1)];
  }
  return std::normal_distribution<double>(0, 4)(*random);
}

// What a tensor looks like; equal shapes make equal tensors.
struct Shape {
  DType dtype = DType::kFloat32;
  int32_t rows = 0, heads = 0, dim = 0;
  int32_t gap = 0;
  bool head_major = false;
};

HostTensor RandomTensor(const Shape& shape, uint64_t seed) {
  HostTensor tensor(shape.dtype, shape.rows, shape.heads, shape.dim, shape.gap,
                    shape.head_major);
  std::mt19937_64 random(seed);
  for (int32_t r = 0; r < shape.rows; ++r) {
    for (int32_t h = 0; h < shape.heads; ++h) {
      for (int32_t c = 0; c < shape.dim; ++c) {
        tensor.Set(r, h, c, RandomValue(&random));
      }
    }
  }
  return tensor;
}

// Wide steps are possible in about half of the shapes.
Shape RandomShape(std::mt19937_64* random, DType dtype, int32_t rows,
                  int32_t heads, int32_t dim) {
  // With the last, head-major rows are aligned that are no whole steps.
  const int32_t gaps[] = {0, 0, 8, 1, 4, 8 - dim % 8};
  return {.dtype = dtype,
          .rows = rows,
          .heads = heads,
          .dim = dim,
          .gap = gaps[Pick(random, 0, 5)],
          .head_major = Pick(random, 0, 3) == 0};
}

int32_t RandomDim(std::mt19937_64* random) {
  constexpr int32_t kDims[] = {1, 3, 8, 16, 24, 40, 64, 128};
  return kDims[Pick(random, 0, 7)];
}

// Runs that write no row twice, in any order, some of them empty.
std::vector<CopyRun> RandomCopyRuns(std::mt19937_64* random, int32_t dst_rows,
                                    int32_t src_rows) {
  std::vector<CopyRun> runs;
  for (int32_t dst = Pick(random, 0, 2); dst < dst_rows;) {
    const int32_t most = std::min({dst_rows - dst, src_rows, 7});
    const int32_t count = Pick(random, 0, most);
    runs.push_back(
        {.dst = dst, .src = Pick(random, 0, src_rows - count), .count = count});
    dst += count + Pick(random, 0, 2);
    if (count == 0) ++dst;
  }
  std::shuffle(runs.begin(), runs.end(), *random);
  int32_t begin = 0;
  for (CopyRun& run : runs) {
    run.begin = begin;
    begin += run.count;
  }
  return runs;
}

std::vector<FoldRun> RandomFoldRuns(std::mt19937_64* random, int32_t dst_rows,
                                    int32_t src_rows) {
  std::vector<FoldRun> runs;
  for (int32_t dst = 0; dst < dst_rows;) {
    const int32_t count =
        Pick(random, 0, std::min({dst_rows - dst, src_rows, 7}));
    const auto addend = [&] {
      return Pick(random, 0, 2) == 0 ? -1 : Pick(random, 0, src_rows - count);
    };
    const int32_t first = addend();
    runs.push_back({dst, count, first, addend()});
    dst += count;
  }
  return runs;
}

// The list where both the host and the kernels find it.
RunList<CopyRun> ListOf(const std::vector<CopyRun>& runs) {
  int32_t rows = 0;
  for (const CopyRun& run : runs) rows += run.count;
  return {runs.data(), runs.data(), static_cast<int32_t>(runs.size()), rows};
}
RunList<FoldRun> ListOf(const std::vector<FoldRun>& runs) {
  int32_t rows = 0;
  for (const FoldRun& run : runs) rows += run.count;
  return {runs.data(), runs.data(), static_cast<int32_t>(runs.size()), rows};
}

void RequireOk(const Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

// Runs both kernels on 1 .. kMaxRowPairs random pairs and compares all bytes of
// their results, gaps and rows that no run names included.
template <class Run>
void ComparePairs(std::mt19937_64* random, const std::vector<Run>& runs,
                  int32_t dst_rows, int32_t src_rows, bool sums,
                  Status (*launch)(std::span<const RowPair>, RunList<Run>,
                                   Stream),
                  void (*on_host)(const RowPair&, std::span<const Run>)) {
  std::vector<HostTensor> sources, got, want;
  std::vector<RowPair> pairs, host_pairs;
  const int32_t count = Pick(random, 1, kMaxRowPairs);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t heads = Pick(random, 1, 5);
    const int32_t dim = RandomDim(random);
    const DType to = kTypes[sums ? Pick(random, 2, 3) : Pick(random, 0, 3)];
    const DType from = kTypes[Pick(random, 0, 3)];
    const Shape dst = RandomShape(random, to, dst_rows, heads, dim);
    const uint64_t seed = (*random)();
    sources.push_back(RandomTensor(
        RandomShape(random, from, src_rows, heads, dim), (*random)()));
    got.push_back(RandomTensor(dst, seed));
    want.push_back(RandomTensor(dst, seed));
    pairs.push_back({got.back().view(), sources.back().view()});
    host_pairs.push_back({want.back().view(), sources.back().view()});
  }
  RequireOk(launch(pairs, ListOf(runs), kNow));
  for (size_t i = 0; i < pairs.size(); ++i) {
    CAPTURE(i, DTypeName(pairs[i].dst.dtype), DTypeName(pairs[i].src.dtype),
            pairs[i].dst.heads, pairs[i].dst.dim);
    on_host(host_pairs[i], runs);
    REQUIRE(got[i].bytes() == want[i].bytes());
  }
}

void ForSeeds(int count, const std::function<void(std::mt19937_64*)>& body) {
  for (int seed = 0; seed < count; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    sim::SetOrderSeed(random());
    body(&random);
  }
}

}  // namespace

TEST_CASE("Row kernels of CUDA: gather as the host", "[kernels]") {
  ForSeeds(150, [](std::mt19937_64* random) {
    const int32_t dst_rows = Pick(random, 0, 40);
    const int32_t src_rows = Pick(random, 1, 40);
    ComparePairs<CopyRun>(random, RandomCopyRuns(random, dst_rows, src_rows),
                          dst_rows, src_rows, false,
                          &internal::LaunchGatherRows, &GatherRowsOnHost);
  });
}

TEST_CASE("Row kernels of CUDA: add as the host", "[kernels]") {
  ForSeeds(100, [](std::mt19937_64* random) {
    const int32_t dst_rows = Pick(random, 0, 40);
    const int32_t src_rows = Pick(random, 1, 40);
    ComparePairs<CopyRun>(random, RandomCopyRuns(random, dst_rows, src_rows),
                          dst_rows, src_rows, true, &internal::LaunchAddRows,
                          &AddRowsOnHost);
  });
}

TEST_CASE("Row kernels of CUDA: fold as the host", "[kernels]") {
  ForSeeds(100, [](std::mt19937_64* random) {
    const int32_t dst_rows = Pick(random, 0, 40);
    const int32_t src_rows = Pick(random, 1, 40);
    ComparePairs<FoldRun>(random, RandomFoldRuns(random, dst_rows, src_rows),
                          dst_rows, src_rows, false, &internal::LaunchFoldRows,
                          &FoldRowsOnHost);
  });
}

namespace {

// O and LSE of one side of a merge; some rows have had no keys, and their O is
// NaN.
struct Attention {
  HostTensor o, lse;
};

Attention RandomAttention(const Shape& o, const Shape& lse, uint64_t seed) {
  Attention made{RandomTensor(o, seed), RandomTensor(lse, seed + 1)};
  std::mt19937_64 random(seed);
  for (int32_t r = 0; r < o.rows; ++r) {
    for (int32_t h = 0; h < o.heads; ++h) {
      const bool no_keys = Pick(&random, 0, 3) == 0;
      made.lse.Set(r, h, 0,
                   no_keys ? -std::numeric_limits<double>::infinity()
                           : std::normal_distribution<double>(0, 9)(random));
      for (int32_t c = 0; c < o.dim; ++c) {
        made.o.Set(r, h, c,
                   no_keys ? std::numeric_limits<double>::quiet_NaN()
                           : std::normal_distribution<double>()(random));
      }
    }
  }
  return made;
}

}  // namespace

TEST_CASE("Row kernels of CUDA: merge attention as the host", "[kernels]") {
  ForSeeds(100, [](std::mt19937_64* random) {
    const int32_t dst_rows = Pick(random, 0, 20);
    const int32_t src_rows = Pick(random, 1, 20);
    const int32_t heads = Pick(random, 1, 5);
    const int32_t dim = RandomDim(random);
    const DType sum = kTypes[Pick(random, 2, 3)];
    const DType part = kTypes[Pick(random, 0, 3)];
    const Shape o = RandomShape(random, sum, dst_rows, heads, dim);
    const Shape lse = RandomShape(random, sum, dst_rows, heads, 1);
    const uint64_t seed = (*random)();
    const Attention got = RandomAttention(o, lse, seed);
    const Attention want = RandomAttention(o, lse, seed);
    const Attention from =
        RandomAttention(RandomShape(random, part, src_rows, heads, dim),
                        RandomShape(random, sum, src_rows, heads, 1), seed + 2);
    const auto runs = RandomCopyRuns(random, dst_rows, src_rows);
    RequireOk(internal::LaunchMergeAttention(
        {got.o.view(), got.lse.view(), from.o.view(), from.lse.view()},
        ListOf(runs), kNow));
    MergeAttentionOnHost(
        {want.o.view(), want.lse.view(), from.o.view(), from.lse.view()}, runs);
    REQUIRE(got.o.bytes() == want.o.bytes());
    REQUIRE(got.lse.bytes() == want.lse.bytes());
  });
}

TEST_CASE("Row kernels of CUDA: a tensor that begins anywhere", "[kernels]") {
  for (const DType dtype : kTypes) {
    const int64_t size = SizeOf(dtype);
    for (int64_t shift = 0; shift < 16; shift += size) {
      alignas(16) std::array<char, 1024> from{}, to{};
      for (size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<char>(i % 64);
      }
      const RowPair pair{
          DenseTensor(to.data() + shift, dtype, 4, 1, 16),
          DenseTensor(from.data() + 16 - shift % 16, dtype, 4, 1, 16)};
      const std::vector<CopyRun> runs = {{0, 1, 0, 3}};
      RequireOk(internal::LaunchGatherRows({&pair, 1}, ListOf(runs), kNow));
      const auto bytes = static_cast<size_t>(3 * 16 * size);
      const char* source = static_cast<char*>(pair.src.data);
      CHECK(std::equal(source, source + bytes, to.data() + shift + 16 * size));
    }
  }
}

TEST_CASE("Row kernels of CUDA: a row's run, by bisection", "[kernels]") {
  ForSeeds(200, [](std::mt19937_64* random) {
    const auto copies = RandomCopyRuns(random, 60, 20);
    const auto folds = RandomFoldRuns(random, 60, 20);
    const auto check = [](const auto& runs) {
      const auto list = ListOf(runs);
      for (int32_t row = 0; row < list.rows; ++row) {
        const auto& found = runs[static_cast<size_t>(
            internal::FindRun(runs.data(), list.count, row))];
        REQUIRE(internal::BeginOf(found) <= row);
        REQUIRE(row - internal::BeginOf(found) < found.count);
      }
    };
    check(copies);
    check(folds);
  });
}

TEST_CASE("Row kernels of CUDA: what the kernels could not take is refused",
          "[kernels]") {
  std::array<double, 64> memory{};
  const Tensor good = DenseTensor(memory.data(), DType::kFloat32, 4, 2, 3);
  const Tensor half = DenseTensor(memory.data(), DType::kBFloat16, 4, 2, 3);
  const Tensor lse = DenseTensor(memory.data(), DType::kFloat32, 4, 2, 1);
  const std::vector<CopyRun> runs = {{0, 1, 0, 2}};
  const RowPair pair{good, good};
  const RowPair into_half{half, good};
  // As row_checks.h says.
  const RowPair short_pair{good, good.Rows(0, 1)};
  const std::vector<FoldRun> folds = {{0, 1, 0, -1}, {1, 1, 1, -1}};
  const std::string too_short =
      "pair 0: src has 1 rows, of which the list names 2";
  const auto list = ListOf(runs);
  CHECK(internal::LaunchGatherRows({&short_pair, 1}, list, kNow).message() ==
        too_short);
  CHECK(internal::LaunchAddRows({&short_pair, 1}, list, kNow).message() ==
        too_short);
  CHECK(internal::LaunchFoldRows({&short_pair, 1}, ListOf(folds), kNow)
            .message() == too_short);
  CHECK(internal::LaunchMergeAttention({good, lse, good, lse.Rows(0, 1)}, list,
                                       kNow)
            .message() == "lse: src has 1 rows, of which the list names 2");
  // What is the launcher's own.
  CHECK(internal::LaunchAddRows({&into_half, 1}, list, kNow).message() ==
        "rows are added to bfloat16, which is no accumulator");
  RunList<CopyRun> on_host = list;
  on_host.device = nullptr;
  CHECK(internal::LaunchGatherRows({&pair, 1}, on_host, kNow).message() ==
        "the list of runs is not on the device");
  // More heads than a grid has warps; none of the memory is touched.
  constexpr int32_t kRows = std::numeric_limits<int32_t>::max();
  const Tensor many = DenseTensor(memory.data(), DType::kFloat32, kRows, 5, 1);
  const std::vector<CopyRun> all = {{0, 0, 0, kRows}};
  CHECK(internal::LaunchMergeAttention({many, many, many, many}, ListOf(all),
                                       kNow)
            .message() ==
        "10737418235 heads of rows, of which one merge takes 8589934588");
}

}  // namespace skrull::exec::testing
