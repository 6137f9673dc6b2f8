// NcclPool's logic against a fake of NCCL: needs neither NCCL nor a GPU.
#include "skrull/cuda/nccl/nccl_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/split_plan.h"
#include "skrull/tests/cuda/fake_nccl.h"
#include "skrull/tests/cuda/host_rank.h"

namespace skrull::exec::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using PoolOr = Result<std::unique_ptr<NcclPool>>;

// Ranks as threads, over one fake; the control plane is in process, too.
struct Ranks {
  explicit Ranks(int32_t count, NcclPoolOptions opts = {})
      : size(count), options(opts), control(count) {
    if (opts.time_limit == NcclPoolOptions().time_limit) {
      options.time_limit = seconds(30);
    }
    options.poll_interval = milliseconds(1);
  }

  PoolOr Create(int32_t rank) {
    return NcclPool::Create(
        options, &nccl, control.communicators(rank),
        [&](const std::string& mine) -> Result<std::string> {
          if (rank == 0) offer.set_value(mine);
          return offered.get();
        });
  }

  // All ranks' pools; REQUIRES that they are made.
  std::vector<std::unique_ptr<NcclPool>> CreateAll() {
    std::vector<std::future<PoolOr>> ranks;
    for (int32_t rank = 0; rank < size; ++rank) {
      ranks.push_back(
          std::async(std::launch::async, [&, rank] { return Create(rank); }));
    }
    std::vector<std::unique_ptr<NcclPool>> pools;
    for (auto& rank : ranks) {
      PoolOr pool = rank.get();
      INFO(pool.status().ToString());
      REQUIRE(pool.ok());
      pools.push_back(*std::move(pool));
    }
    return pools;
  }

  const int32_t size;
  NcclPoolOptions options;
  InProcessPool control;
  FakeNccl nccl;
  std::promise<std::string> offer;
  std::shared_future<std::string> offered = offer.get_future().share();
};

// act(rank) on a thread of each rank.
template <class F>
auto OnAll(int32_t size, const F& act) {
  std::vector<std::future<decltype(act(0))>> ranks;
  for (int32_t rank = 0; rank < size; ++rank) {
    ranks.push_back(
        std::async(std::launch::async, [&act, rank] { return act(rank); }));
  }
  std::vector<decltype(act(0))> results;
  for (auto& rank : ranks) results.push_back(rank.get());
  return results;
}

Status FailureOf(CommunicatorSet* set) {
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (set->Poll().ok() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return set->Poll();
}

Status AnnounceAll(const std::vector<std::unique_ptr<NcclPool>>& pools,
                   const std::vector<Block>& blocks) {
  const auto statuses =
      OnAll(static_cast<int32_t>(pools.size()), [&](int32_t rank) {
        return pools[static_cast<size_t>(rank)]->Announce(blocks);
      });
  for (const Status& status : statuses) SKRULL_EXEC_RETURN_IF_ERROR(status);
  return {};
}

TEST_CASE("PlanSplits: every block once, and no rank twice in a split",
          "[nccl]") {
  const std::vector<Block> blocks = {{0, 8}, {0, 4}, {4, 4}, {0, 2},
                                     {2, 2}, {4, 2}, {6, 2}, {1, 3}};
  const auto splits = PlanSplits(blocks);
  CHECK(splits ==
        std::vector<std::vector<Block>>{{{0, 8}},
                                        {{0, 4}, {4, 4}},
                                        {{0, 2}, {2, 2}, {4, 2}, {6, 2}},
                                        {{1, 3}}});
  CHECK(PlanSplits({}).empty());
}

TEST_CASE("NcclPool: collectives on split blocks get the right ranks' data",
          "[nccl]") {
  for (const int32_t size : {1, 2, 3, 5, 8}) {
    const auto seed = static_cast<uint64_t>(200 + size);
    INFO("size " << size);
    Ranks ranks(size);
    InProcessPool reference(size);
    auto pools = ranks.CreateAll();
    const auto want = OnAll(size, [&](int32_t rank) {
      return RunCollectives(reference.communicators(rank), seed);
    });
    const auto got = OnAll(size, [&](int32_t rank) {
      return RunCollectives(pools[static_cast<size_t>(rank)].get(), seed);
    });
    for (size_t rank = 0; rank < got.size(); ++rank) {
      INFO(got[rank].status().ToString());
      REQUIRE(got[rank].ok());
      const bool same = *got[rank] == *want[rank];
      CHECK(same);
    }
    pools.clear();
    const FakeNccl::Counts counts = ranks.nccl.counts();
    CHECK(counts.misuses == 0);
    CHECK(counts.communicators == 0);
    CHECK(counts.aborted == 0);
    CHECK(counts.destroyed >= size);
  }
}

TEST_CASE("NcclPool: blocks are split once, in the order of the plan",
          "[nccl]") {
  Ranks ranks(4);
  const auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{2, 2}, {0, 4}, {0, 3}, {0, 2}}).ok());
  // The whole pool needs no split; ranks in no block of a split take part.
  CHECK(ranks.nccl.splits() ==
        std::vector<std::string>{"1/0 1/1 0/0 0/1", "0/0 0/1 0/2 -1/0"});
  REQUIRE(AnnounceAll(pools, {{0, 3}, {0, 2}, {1, 3}}).ok());
  CHECK(ranks.nccl.splits().size() == 3);
  CHECK(ranks.nccl.splits().back() == "-1/0 0/0 0/1 0/2");
  CHECK(pools[0]->Find({0, 4}).ok());
  CHECK((*pools[3]->Find({1, 3}))->rank() == 2);
  CHECK(pools[3]->Find({0, 3}).status().code() == StatusCode::kNotFound);
  CHECK(pools[0]->Find({3, 1}).status().code() == StatusCode::kNotFound);
}

TEST_CASE("NcclPool: ranks that announce other blocks never split", "[nccl]") {
  Ranks ranks(3);
  const auto pools = ranks.CreateAll();
  const auto statuses = OnAll(3, [&](int32_t rank) {
    const Block block = rank == 1 ? Block{0, 2} : Block{1, 2};
    return pools[static_cast<size_t>(rank)]->Announce({&block, 1});
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == StatusCode::kFailedPrecondition);
  }
  CHECK(ranks.nccl.splits().empty());
  CHECK(AnnounceAll(pools, {{0, 2}}).ok());
}

TEST_CASE("NcclPool: a rank that never comes is a time-out, not a hang",
          "[nccl]") {
  Ranks ranks(2, {.time_limit = milliseconds(50)});
  const PoolOr pool = ranks.Create(0);
  CHECK(pool.status().code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(pool.status().message(),
             Catch::Contains("rank 0") && Catch::Contains("ranks [0, 2)"));
  CHECK(ranks.nccl.counts().aborted == 1);
  CHECK(ranks.nccl.counts().communicators == 0);
  // The rank that is late hears of it instead of waiting in its turn.
  const PoolOr late = ranks.Create(1);
  CHECK(late.status().code() == StatusCode::kAborted);
  CHECK_THAT(late.status().message(), Catch::Contains("rank 0: DEADLINE"));
}

TEST_CASE("NcclPool: a failure of the control plane ends a connect", "[nccl]") {
  Ranks ranks(2);
  auto zero =
      std::async(std::launch::async, [&] { return ranks.Create(0).status(); });
  ranks.offered.wait();
  ranks.control.communicators(1)->Abort({StatusCode::kOutOfMemory, "test"});
  CHECK(zero.get() ==
        Status(StatusCode::kAborted, "rank 1: OUT_OF_MEMORY: test"));
  CHECK(ranks.nccl.counts().communicators == 0);
}

TEST_CASE("NcclPool: an asynchronous error ends all ranks, without a call",
          "[nccl]") {
  Ranks ranks(3);
  auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{0, 2}}).ok());
  ranks.nccl.SetAsyncError(1, NcclResult::kRemoteError);
  // The watches notice: nobody polls.
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (ranks.nccl.counts().communicators > 0 &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(ranks.nccl.counts().communicators == 0);
  CHECK(ranks.nccl.counts().aborted == 5);
  const Status own = pools[1]->Poll();
  CHECK(own.code() == StatusCode::kCommFailed);
  CHECK_THAT(own.message(), Catch::Contains("fake error 6"));
  for (const size_t other : {size_t{0}, size_t{2}}) {
    CHECK(pools[other]->Poll() ==
          Status(StatusCode::kAborted, "rank 1: " + own.ToString()));
  }
  char byte[3] = {};
  CHECK((*pools[0]->Find({0, 2}))->AllGather(byte, byte + 1, 1, {}) ==
        pools[0]->Poll());
  CHECK(ranks.nccl.counts().misuses == 0);
}

TEST_CASE("NcclPool: an abort releases ranks whose call is in progress",
          "[nccl]") {
  Ranks ranks(3);
  auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{0, 3}}).ok());
  auto waits = OnAll(3, [&](int32_t rank) -> Status {
    NcclPool* const pool = pools[static_cast<size_t>(rank)].get();
    if (rank == 2) {
      pool->Abort({StatusCode::kDeviceError, "a kernel"});
      return pool->Poll();
    }
    char send = 0, recv[3];
    return (*pool->Find({0, 3}))->AllGather(&send, recv, 1, {});
  });
  for (const Status& status : waits) {
    CHECK(status ==
          Status(StatusCode::kAborted, "rank 2: DEVICE_ERROR: a kernel"));
  }
  pools.clear();
  CHECK(ranks.nccl.counts().communicators == 0);
  CHECK(ranks.nccl.counts().destroyed == 0);
  CHECK(ranks.nccl.counts().misuses == 0);
}

TEST_CASE("NcclPool: a call that NCCL does not finish has a deadline",
          "[nccl]") {
  Ranks ranks(2, {.time_limit = milliseconds(500)});
  auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{0, 2}}).ok());
  char send = 0, recv[2];
  const Status status =
      (*pools[0]->Find({0, 2}))->AllGather(&send, recv, 1, {});
  CHECK(status.code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(status.message(), Catch::Contains("all-gather"));
  CHECK(FailureOf(pools[1].get()).code() == StatusCode::kAborted);
}

TEST_CASE("NcclPool: buffers are registered, and released in every case",
          "[nccl]") {
  const auto allocate = [](const auto& pools, std::vector<Buffer>* buffers) {
    const auto made = OnAll(2, [&](int32_t rank) -> Status {
      Result<Communicator*> comm =
          pools[static_cast<size_t>(rank)]->Find({0, 2});
      SKRULL_EXEC_RETURN_IF_ERROR(comm.status());
      Result<Buffer> buffer = (*comm)->Allocate(rank == 0 ? 5000 : 5001);
      SKRULL_EXEC_RETURN_IF_ERROR(buffer.status());
      (*buffers)[static_cast<size_t>(rank)] = *std::move(buffer);
      return {};
    });
    for (const Status& status : made) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
  };
  const bool registered = GENERATE(true, false);
  const bool have_windows = GENERATE(true, false);
  const bool fails = GENERATE(true, false);
  Ranks ranks(2, {.register_buffers = registered});
  if (!have_windows) ranks.nccl.HaveNoWindows();
  auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{0, 2}}).ok());
  {
    std::vector<Buffer> buffers(2);
    allocate(pools, &buffers);
    CHECK(buffers[0].bytes() == 5000);
    CHECK(reinterpret_cast<uintptr_t>(buffers[0].data()) % 256 == 0);
    CHECK(ranks.nccl.counts().buffers == 2);
    CHECK(ranks.nccl.counts().windows == (registered && have_windows ? 2 : 0));
    if (fails) pools[1]->Abort({StatusCode::kDeviceError, "test"});
    if (fails) CHECK_FALSE(FailureOf(pools[0].get()).ok());
  }
  CHECK(ranks.nccl.counts().buffers == 0);
  if (!fails) CHECK(ranks.nccl.counts().windows == 0);
  pools.clear();
  CHECK(ranks.nccl.counts().misuses == 0);
}

TEST_CASE("NcclPool: a rank without memory ends the others' registration",
          "[nccl]") {
  Ranks ranks(2);
  auto pools = ranks.CreateAll();
  REQUIRE(AnnounceAll(pools, {{0, 2}}).ok());
  auto one = std::async(std::launch::async, [&] {
    return (*pools[1]->Find({0, 2}))->Allocate(100).status();
  });
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (ranks.nccl.counts().windows == 0 &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  ranks.nccl.Break("MemAlloc", NcclResult::kUnhandledCudaError);
  const Status zero = (*pools[0]->Find({0, 2}))->Allocate(100).status();
  CHECK(zero.code() == StatusCode::kDeviceError);
  CHECK(one.get() ==
        Status(StatusCode::kAborted, "rank 0: " + zero.ToString()));
  CHECK(ranks.nccl.counts().buffers == 0);
  CHECK((*pools[0]->Find({0, 2}))->Allocate(-1).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("NcclPool: NCCL's results are told by code and in its words",
          "[nccl]") {
  const std::pair<NcclResult, StatusCode> rows[] = {
      {NcclResult::kUnhandledCudaError, StatusCode::kDeviceError},
      {NcclResult::kSystemError, StatusCode::kCommFailed},
      {NcclResult::kInternalError, StatusCode::kCommFailed},
      {NcclResult::kInvalidArgument, StatusCode::kInvalidArgument},
      {NcclResult::kInvalidUsage, StatusCode::kInvalidArgument},
      {NcclResult::kRemoteError, StatusCode::kCommFailed}};
  for (const char* call : {"GetUniqueId", "CommInitRank"}) {
    for (const auto& [result, code] : rows) {
      Ranks ranks(1);
      ranks.nccl.Break(call, result);
      const Status status = ranks.Create(0).status();
      CHECK(status.code() == code);
      CHECK_THAT(status.message(),
                 Catch::EndsWith("fake error " +
                                 std::to_string(static_cast<int>(result))));
      CHECK_FALSE(ranks.control.communicators(0)->Poll().ok());
    }
  }
  for (const char* call : {"CommSplit", "AllGather"}) {
    Ranks ranks(2);
    auto pools = ranks.CreateAll();
    REQUIRE(AnnounceAll(pools, {{0, 2}}).ok());
    ranks.nccl.Break(call, NcclResult::kInvalidUsage);
    const auto statuses = OnAll(2, [&](int32_t rank) -> Status {
      NcclPool* const pool = pools[static_cast<size_t>(rank)].get();
      const Block blocks[] = {{0, 1}};
      SKRULL_EXEC_RETURN_IF_ERROR(pool->Announce(blocks));
      char send = 0, recv[2];
      return (*pool->Find({0, 2}))->AllGather(&send, recv, 1, {});
    });
    for (const Status& status : statuses) {
      CHECK((status.code() == StatusCode::kInvalidArgument ||
             status.code() == StatusCode::kAborted));
    }
  }
}

TEST_CASE("NcclPool: bytes that are no unique id are refused", "[nccl]") {
  Ranks ranks(1);
  const PoolOr pool = NcclPool::Create(
      ranks.options, &ranks.nccl, ranks.control.communicators(0),
      [](const std::string&) -> Result<std::string> {
        return std::string("127.0.0.1:80");
      });
  CHECK(pool.status().code() == StatusCode::kCommFailed);
  CHECK_THAT(pool.status().message(), Catch::Contains("12 bytes"));
}

TEST_CASE("NcclPool: what does not close in time is aborted", "[nccl]") {
  Ranks ranks(1);
  auto pools = ranks.CreateAll();
  ranks.nccl.Break("CommFinalize", NcclResult::kInternalError);
  pools.clear();
  CHECK(ranks.nccl.counts().communicators == 0);
  CHECK(ranks.nccl.counts().aborted == 1);
}

}  // namespace
}  // namespace skrull::exec::testing
