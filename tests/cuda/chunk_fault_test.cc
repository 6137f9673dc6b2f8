// A fault at any call of any part of a chunk executor: no rank stays stuck, and
// each reports it.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>

#include "skrull/tests/cuda/chunk_pool.h"
#include "skrull/tests/cuda/faults.h"

namespace skrull::exec::testing {
namespace {

struct FaultyRun {
  ChunkRunResult result;
  int calls = 0;  // of the faulty rank
};

FaultyRun RunWithFault(int32_t faulty_rank, int at, Fault::Kind kind) {
  // Two groups, each kind of pass, and a chunk that is shorter than its group.
  TestChunks chunks(2, 2, 1);
  chunks.AddSplit(0, {5, 4, 1});
  chunks.AddWhole(0, {3, 2});
  chunks.AddWhole(1, {6});
  std::mt19937_64 random(3);
  RunOptions options;
  options.executor.problem = {.dtype = DType::kFloat64,
                              .q_heads = 2,
                              .kv_heads = 1,
                              .head_dim = 3,
                              .scale = 0.5};
  options.layers = 2;
  // Far more than a run takes; a rank that gets stuck reports it as its
  // failure.
  options.pool.time_limit = std::chrono::seconds(120);
  const auto data = RandomData(&random, options.executor.problem, chunks, 2);
  Fault fault(at, kind);
  std::unique_ptr<FaultyParts> faulty;
  options.change_parts = [&](int32_t rank, RankParts* parts) {
    if (rank != faulty_rank) return;
    faulty = std::make_unique<FaultyParts>(*parts, &fault);
    *parts = faulty->parts();
  };
  FaultyRun run{.result = RunChunks(chunks, data, options)};
  run.calls = fault.calls();
  if (at < 0) {
    const Errors errors =
        CompareWithDense(chunks, data, options.executor.problem, run.result);
    CHECK(errors.worst() < 1e-10);
  }
  return run;
}

void CheckFaults(Fault::Kind kind) {
  for (const int32_t rank : {0, 1, 3}) {
    const FaultyRun healthy = RunWithFault(rank, -1, kind);
    for (const Status& status : healthy.result.statuses) REQUIRE(status.ok());
    REQUIRE(healthy.calls > (rank < 2 ? 200 : 30));
    // Every third call, each at one of the ranks.
    for (int at = rank % 3; at < healthy.calls; at += rank < 2 ? 3 : 1) {
      INFO("rank " << rank << ", call " << at << " of " << healthy.calls);
      const ChunkRunResult result = RunWithFault(rank, at, kind).result;
      CheckFaultIsReported(static_cast<size_t>(rank), result.statuses,
                           result.statuses_after);
    }
  }
}

}  // namespace

TEST_CASE("Chunks: a fault anywhere reaches every rank", "[chunks][fault]") {
  SECTION("at once") { CheckFaults(Fault::Kind::kAtOnce); }
  SECTION("later") { CheckFaults(Fault::Kind::kLater); }
}

}  // namespace skrull::exec::testing
