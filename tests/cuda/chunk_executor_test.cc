// The chunk executor against dense attention.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/cuda/random_order_device.h"
#include "skrull/tests/cuda/recording_communicators.h"

namespace skrull::exec::testing {
namespace {

AttentionProblem RandomProblem(std::mt19937_64* random, DType dtype) {
  const int32_t groups[] = {1, 2, 7};
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.kv_heads = 1 + static_cast<int32_t>((*random)() % 2);
  problem.q_heads = problem.kv_heads * groups[(*random)() % 3];
  problem.head_dim = 3 + static_cast<int32_t>((*random)() % 5);
  problem.scale = 1 / std::sqrt(problem.head_dim);
  return problem;
}

AttentionProblem SmallProblem() {
  return {.dtype = DType::kFloat64,
          .q_heads = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .scale = 0.5};
}

void RequireOk(const ChunkRunResult& result) {
  for (const Status& status : result.statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
}

// Split sequences and whole ones, on two groups of three ranks; a chunk that is
// shorter than its group; each kind of pass.
TestChunks ThreeKinds() {
  TestChunks chunks(2, 3, 2);
  chunks.AddSplit(0, {13, 13, 13, 2});
  chunks.AddWhole(0, {5, 1, 9});
  chunks.AddWhole(1, {17});
  chunks.AddSplit(1, {8, 3});
  return chunks;
}

}  // namespace

TEST_CASE("Chunks: random plans equal dense attention", "[chunks]") {
  int recomputed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    RunOptions options;
    options.executor.problem = RandomProblem(&random, DType::kFloat64);
    options.gap = static_cast<int32_t>(random() % 3);
    options.head_major_lse = random() % 2 == 0;
    options.layers = 1 + static_cast<int32_t>(random() % 2);
    options.backend_threads = 1 + static_cast<int>(random() % 2);
    const TestChunks chunks = RandomChunks(&random, 8);
    const auto data =
        RandomData(&random, options.executor.problem, chunks, options.layers);
    const ChunkRunResult result = RunChunks(chunks, data, options);
    RequireOk(result);
    const Errors errors =
        CompareWithDense(chunks, data, options.executor.problem, result);
    CHECK(errors.o < 1e-10);
    CHECK(errors.lse < 1e-10);
    CHECK(errors.dq < 1e-10);
    CHECK(errors.dk < 1e-10);
    CHECK(errors.dv < 1e-10);
    for (const auto& layer : result.tensors) {
      for (const auto& tensors : layer) {
        for (const auto& [chunk, t] : tensors) {
          for (const HostTensor* tensor : {&t.o, &t.lse, &t.dq, &t.dk, &t.dv}) {
            CHECK(tensor->GapsAreUntouched());
          }
        }
      }
    }
    recomputed += result.recomputed;
    CHECK(result.recomputed_with_other_bits == 0);
  }
  CHECK(recomputed > 100);
}

// Every group, cut and number of retained chunks, on lengths about the group's
// 2g.
TEST_CASE("Chunks: every size of group, chunks and retention", "[chunks]") {
  for (const int32_t ranks : {1, 2, 3, 4, 8}) {
    for (int32_t count = 1; count <= 6; ++count) {
      for (int64_t retained = 1; retained <= std::min(count, 4); ++retained) {
        INFO(ranks << " ranks, " << count << " chunks, " << retained
                   << " retained");
        TestChunks chunks(1, ranks, retained);
        std::vector<int32_t> lengths(static_cast<size_t>(count), 2 * ranks + 1);
        lengths.back() = 1;
        if (count == 1) {
          chunks.AddWhole(0, {2 * ranks - 1});
        } else {
          chunks.AddSplit(0, lengths);
        }
        std::mt19937_64 random(static_cast<uint64_t>(count));
        RunOptions options;
        options.executor.problem = SmallProblem();
        const auto data = RandomData(&random, SmallProblem(), chunks);
        const ChunkRunResult result = RunChunks(chunks, data, options);
        RequireOk(result);
        CHECK(CompareWithDense(chunks, data, SmallProblem(), result).worst() <
              1e-10);
        CHECK(result.recomputed ==
              ranks * std::max<int64_t>(count - retained, 0));
        CHECK(result.recomputed_with_other_bits == 0);
      }
    }
  }
}

// As in a pipeline: groups that are under way at the same time do not share
// rows, and one that comes later takes the rows of one that has ended.
TEST_CASE("Chunks: sequences that take turns", "[chunks]") {
  constexpr auto kF = ChunkPass::kForward;
  constexpr auto kD = ChunkPass::kForwardDiscard;
  constexpr auto kR = ChunkPass::kRecompute;
  constexpr auto kB = ChunkPass::kBackward;
  for (const int32_t ranks : {1, 3}) {
    TestChunks chunks(1, ranks, 2);
    chunks.AddSplit(0, {9, 8});      // 0, 1
    chunks.AddSplit(0, {10, 3, 7});  // 2, 3, 4
    chunks.AddWhole(0, {5, 6});      // 5
    chunks.AddSplit(0, {14, 12});    // 6, 7
    chunks.SetOperations(0, {{kD, 0},
                             {kD, 2},
                             {kF, 1},
                             {kF, 3},
                             {kF, 5},
                             {kF, 4},
                             {kB, 1},
                             {kB, 4},
                             {kR, 0},
                             {kB, 3},
                             {kB, 0},
                             {kF, 6},
                             {kR, 2},
                             {kF, 7},
                             {kB, 5},
                             {kB, 7},
                             {kB, 2},
                             {kB, 6}});
    std::mt19937_64 random(2);
    RunOptions options;
    options.executor.problem = SmallProblem();
    options.layers = 2;
    const auto data = RandomData(&random, SmallProblem(), chunks, 2);
    const ChunkRunResult result = RunChunks(chunks, data, options);
    RequireOk(result);
    CHECK(CompareWithDense(chunks, data, SmallProblem(), result).worst() <
          1e-10);
    CHECK(result.recomputed == 4 * ranks);
    CHECK(result.recomputed_with_other_bits == 0);
  }
}

TEST_CASE("Chunks: float32 and 16-bit tensors", "[chunks]") {
  TestChunks chunks(1, 4, 1);
  chunks.AddSplit(0, {64, 64, 64, 64, 64, 30});
  chunks.AddWhole(0, {20, 31});
  const auto run = [&](DType dtype, std::optional<DType> grad_comm_dtype) {
    std::mt19937_64 random(4);
    RunOptions options;
    options.executor.problem = {.dtype = dtype,
                                .q_heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .scale = 0.25};
    options.executor.grad_comm_dtype = grad_comm_dtype;
    const auto data = RandomData(&random, options.executor.problem, chunks);
    const ChunkRunResult result = RunChunks(chunks, data, options);
    RequireOk(result);
    CHECK(result.recomputed_with_other_bits == 0);
    return CompareWithDense(chunks, data, options.executor.problem, result);
  };
  // Sums of at most 350 * 2 products, each with an error of half a unit.
  CHECK(run(DType::kFloat32, {}).worst() < 8 * 716 * 0x1p-24);
  CHECK(run(DType::kFloat16, {}).worst() < 3e-3);
  const Errors narrow = run(DType::kBFloat16, {});
  CHECK(narrow.worst() < 1.5e-2);
  CHECK(narrow.lse < 1e-3);
  const Errors wide = run(DType::kBFloat16, DType::kFloat32);
  CHECK(wide.kv_norm() < narrow.kv_norm());
}

// Gradients of earlier chunks' keys are kept in float32. In bfloat16 a sum of
// ones stops growing at 256; here one key gathers dV = 1 from each of 300
// chunks.
TEST_CASE("Chunks: many chunks' gradients do not vanish", "[chunks]") {
  constexpr int32_t kChunks = 300;
  TestChunks chunks(1, 1, 1);
  chunks.AddSplit(0, std::vector<int32_t>(kChunks, 1));
  RunOptions options;
  options.executor.problem = {.dtype = DType::kBFloat16,
                              .q_heads = 1,
                              .kv_heads = 1,
                              .head_dim = 1,
                              .scale = 1};
  std::vector<SequenceData> data(1);
  for (Dense* dense : {&data[0].q, &data[0].k, &data[0].v, &data[0].d_o}) {
    *dense = Dense(kChunks, 1, 1);
  }
  std::ranges::fill(data[0].q.values, 1.0);
  std::ranges::fill(data[0].k.values, -100.0);
  data[0].k.values[0] = 100;  // all attention goes to the first key
  std::ranges::fill(data[0].d_o.values, 1.0);
  const ChunkRunResult result = RunChunks(chunks, data, options);
  RequireOk(result);
  CHECK(result.tensors[0][0].at(0).dv.Get(0, 0, 0) == kChunks);
}

TEST_CASE("Chunks: the same bits again, whatever the order of ready work",
          "[chunks]") {
  const TestChunks chunks = ThreeKinds();
  std::mt19937_64 random(5);
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.layers = 2;
  const auto data = RandomData(&random, SmallProblem(), chunks, 2);
  const ChunkRunResult want = RunChunks(chunks, data, options);
  RequireOk(want);
  REQUIRE(CompareWithDense(chunks, data, SmallProblem(), want).worst() < 1e-10);
  options.backend_threads = 3;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    options.new_device = [&](int32_t rank) {
      return std::make_unique<RandomOrderDevice>(100 * seed +
                                                 static_cast<uint64_t>(rank));
    };
    const ChunkRunResult got = RunChunks(chunks, data, options);
    RequireOk(got);
    CHECK(SameBits(got, want));
  }
}

// The search above would find a missing dependency: without any of rank 0's
// last waits, some order gives other bits.
TEST_CASE("Chunks: its waits are needed", "[chunks]") {
  TestChunks chunks(1, 2, 1);
  chunks.AddSplit(0, {9, 6});
  std::mt19937_64 random(6);
  RunOptions options;
  options.executor.problem = SmallProblem();
  const auto data = RandomData(&random, SmallProblem(), chunks);
  const ChunkRunResult want = RunChunks(chunks, data, options);
  RequireOk(want);
  int waits = 0;
  const auto is_noticed = [&](int dropped, uint64_t seed) {
    options.new_device = [&](int32_t rank) -> std::unique_ptr<Device> {
      auto device =
          std::make_unique<RandomOrderDevice>(seed, rank == 0 ? dropped : -1);
      if (rank == 0) device->CountWaitsIn(&waits);
      return device;
    };
    const ChunkRunResult got = RunChunks(chunks, data, options);
    return !std::ranges::all_of(got.statuses, &Status::ok) ||
           !SameBits(got, want);
  };
  REQUIRE_FALSE(is_noticed(-1, 0));
  // Each call waits for the one before, which is on the same stream; two
  // forward and two backward passes wait twice more, the recomputation does
  // not.
  const std::vector<bool> expected = {false, true, true,   // forward
                                      false, true, true,   // forward
                                      false, true, true,   // backward
                                      false,               // recomputation
                                      false, true, true};  // backward
  REQUIRE(waits == static_cast<int>(expected.size()));
  for (int dropped = 0; dropped < waits; ++dropped) {
    bool noticed = false;
    for (uint64_t seed = 0; seed < 20 && !noticed; ++seed) {
      noticed = is_noticed(dropped, seed);
    }
    INFO("wait " << dropped);
    CHECK(noticed == expected[static_cast<size_t>(dropped)]);
  }
}

TEST_CASE("Chunks: one all-gather and one reduce-scatter a chunk and layer",
          "[chunks]") {
  const TestChunks chunks = ThreeKinds();
  std::mt19937_64 random(7);
  RunOptions options;
  options.executor.problem = SmallProblem();
  options.layers = 2;
  std::vector<std::unique_ptr<RecordingCommunicators>> recorders(6);
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    auto& mine = recorders[static_cast<size_t>(rank)];
    mine = std::make_unique<RecordingCommunicators>(parts->communicators);
    parts->communicators = mine.get();
  };
  const auto data = RandomData(&random, SmallProblem(), chunks, 2);
  RequireOk(RunChunks(chunks, data, options));
  using Kind = Collective::Kind;
  // A row: K and V of one head of 4 doubles. Two layers each.
  const auto add = [](std::vector<Collective>* list, Kind kind, Block block,
                      int64_t rows) {
    list->insert(list->end(), 2, {kind, block, rows * 64});
  };
  std::vector<Collective> first;
  const Block low{0, 3};
  // Chunks of 13, 13, 13 and 2 tokens; then one of 15.
  for (const int64_t rows : {5, 5, 5, 1}) {
    add(&first, Kind::kAllGather, low, rows);
  }
  for (const int64_t rows : {1, 5, 5, 5}) {
    add(&first, Kind::kReduceScatter, low, rows);
  }
  add(&first, Kind::kAllGather, low, 5);
  add(&first, Kind::kReduceScatter, low, 5);
  std::vector<Collective> second;
  const Block high{3, 3};
  add(&second, Kind::kAllGather, high, 6);  // 17 tokens
  add(&second, Kind::kReduceScatter, high, 6);
  for (const int64_t rows : {3, 1}) add(&second, Kind::kAllGather, high, rows);
  for (const int64_t rows : {1, 3}) {
    add(&second, Kind::kReduceScatter, high, rows);
  }
  for (size_t rank = 0; rank < 6; ++rank) {
    CHECK(recorders[rank]->collectives() == (rank < 3 ? first : second));
  }
}

// Sequences one after another: what the longest takes.
TEST_CASE("Chunks: the store is as large as documented", "[chunks]") {
  std::mt19937_64 random(8);
  RunOptions options;
  // 256 bytes a row, so that no tensor is rounded up.
  options.executor.problem = {.dtype = DType::kFloat32,
                              .q_heads = 2,
                              .kv_heads = 2,
                              .head_dim = 32,
                              .scale = 0.2};
  options.layers = 3;
  const auto bytes = [&](const TestChunks& chunks) {
    const auto data = RandomData(&random, options.executor.problem, chunks, 3);
    const ChunkRunResult result = RunChunks(chunks, data, options);
    RequireOk(result);
    return result.store_bytes;
  };
  constexpr int64_t kRow = 3 * 2 * 256;  // K and V, or dK and dV, in all layers
  TestChunks chunks(2, 2, 1);
  chunks.AddSplit(0, {20, 20, 3});
  chunks.AddWhole(0, {10, 12});
  chunks.AddSplit(0, {20, 18});
  chunks.AddWhole(1, {31, 7});
  CHECK(bytes(chunks) == std::vector<int64_t>{2 * 43 * kRow, 2 * 43 * kRow,
                                              38 * kRow, 38 * kRow});
  // On one rank, whole sequences need none.
  TestChunks alone(1, 1, 2);
  alone.AddWhole(0, {31, 7});
  CHECK(bytes(alone) == std::vector<int64_t>{0});
  alone.AddSplit(0, {11, 5});
  CHECK(bytes(alone) == std::vector<int64_t>{2 * 16 * kRow});
}

}  // namespace skrull::exec::testing
