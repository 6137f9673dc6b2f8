// Host pools of real processes, and their setup under hostile connections.
#include "skrull/cuda/host/host_pool.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "skrull/cuda/host/mesh.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/tests/cuda/host_rank.h"
#include "skrull/tests/cuda/rank_pool.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::exec::testing {
namespace {

using skrull::testing::Process;
using skrull::testing::TempDir;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string LastLine(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

// Ranks as processes.
struct Ranks {
  Ranks(int32_t size, const std::string& scenario, uint64_t seed = 0) {
    for (int32_t rank = 0; rank < size; ++rank) {
      processes.push_back(std::make_unique<Process>(std::vector<std::string>{
          SKRULL_HOST_RANK_PATH, directory.path().string(),
          std::to_string(rank), std::to_string(size), scenario,
          std::to_string(seed)}));
    }
  }
  // What rank r printed last; REQUIRES that it ended with 0.
  std::string Result(int32_t rank) {
    Process& process = *processes[static_cast<size_t>(rank)];
    const int exit_code = process.Wait();
    INFO(process.Output());
    REQUIRE(exit_code == 0);
    return LastLine(process.Output());
  }
  TempDir directory;
  std::vector<std::unique_ptr<Process>> processes;
};

TEST_CASE("HostPool: processes get the bits that threads get",
          "[host][processes]") {
  for (const int32_t size : {1, 2, 3, 5, 8}) {
    const auto seed = static_cast<uint64_t>(100 + size);
    INFO("size " << size << ", seed " << seed);
    Ranks ranks(size, "collectives", seed);
    InProcessPool pool(size);
    std::vector<std::future<Result<std::string>>> threads;
    for (int32_t rank = 0; rank < size; ++rank) {
      threads.push_back(std::async(std::launch::async, [&pool, rank, seed] {
        return RunCollectives(pool.communicators(rank), seed);
      }));
    }
    for (int32_t rank = 0; rank < size; ++rank) {
      const Result<std::string> want = threads[static_cast<size_t>(rank)].get();
      REQUIRE(want.ok());
      CHECK(ranks.Result(rank) == "OK");
      // Not with CHECK, which would print megabytes.
      const bool same =
          ReadBytes(ranks.directory.path() / std::to_string(rank)) == *want;
      CHECK(same);
      CHECK(want->size() > 10'000);
    }
  }
}

TEST_CASE("HostPool: a killed rank is named by all others within seconds",
          "[host][processes]") {
  for (const int32_t size : {2, 5, 8}) {
    Ranks ranks(size, "killed");
    CHECK(ranks.processes.back()->Wait() == 128 + SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    for (int32_t rank = 0; rank < size - 1; ++rank) {
      CHECK_THAT(ranks.Result(rank),
                 Catch::StartsWith("ABORTED: rank " + std::to_string(size - 1) +
                                   " is gone"));
    }
    // Far below the 30 seconds of any deadline.
    CHECK(std::chrono::steady_clock::now() - killed < seconds(15));
  }
}

TEST_CASE("HostPool: a slow rank is named, and fails too",
          "[host][processes]") {
  Ranks ranks(4, "slow");
  for (int32_t rank = 0; rank < 4; ++rank) {
    const std::string result = ranks.Result(rank);
    INFO(result);
    CHECK_THAT(result, Catch::StartsWith("DEADLINE_EXCEEDED") &&
                           Catch::EndsWith("for rank 3"));
  }
}

TEST_CASE("HostPool: an abort reaches ranks that wait and ranks that compute",
          "[host][processes]") {
  Ranks ranks(5, "abort");
  for (int32_t rank = 0; rank < 5; ++rank) {
    CHECK(ranks.Result(rank) == "ABORTED: rank 4: DEVICE_ERROR: a test");
  }
}

TEST_CASE("HostPool: ranks that disagree all say so, and go on",
          "[host][processes]") {
  Ranks ranks(3, "disagree");
  for (int32_t rank = 0; rank < 3; ++rank) {
    CHECK(ranks.Result(rank) == "OK");
    CHECK_THAT(ranks.processes[static_cast<size_t>(rank)]->Output(),
               Catch::StartsWith("FAILED_PRECONDITION: ranks differ: rank 0 "
                                 "came with plan a, rank 2 with plan b\n"));
  }
}

// Threads of this process that meet through a promise.
struct Offer {
  Rendezvous For(int32_t rank) {
    return [this, rank](const std::string& mine) -> Result<std::string> {
      if (rank == 0) promise.set_value(mine);
      return future.get();
    };
  }
  std::promise<std::string> promise;
  std::shared_future<std::string> future = promise.get_future().share();
};

std::vector<std::unique_ptr<HostPool>> PoolOfThreads(int32_t size) {
  Offer offer;
  std::vector<std::future<Result<std::unique_ptr<HostPool>>>> ranks;
  for (int32_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      return HostPool::Create({.rank = rank, .size = size}, offer.For(rank));
    }));
  }
  std::vector<std::unique_ptr<HostPool>> pools;
  for (auto& rank : ranks) {
    Result<std::unique_ptr<HostPool>> pool = rank.get();
    INFO(pool.status().ToString());
    REQUIRE(pool.ok());
    pools.push_back(*std::move(pool));
  }
  return pools;
}

TEST_CASE("HostPool: the executor computes the bits of in-process ranks",
          "[host][executor]") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TestPlan plan = RandomPlan(&random, 8);
    RunOptions options;
    options.executor.problem.dtype =
        seed % 2 == 0 ? DType::kBFloat16 : DType::kFloat32;
    options.executor.problem.q_heads = 4;
    options.executor.problem.kv_heads = 2;
    options.executor.problem.head_dim = 8;
    options.executor.problem.scale = 0.25;
    options.executor.exchange =
        seed % 3 == 0 ? Exchange::kRing : Exchange::kAllGather;
    const auto data = RandomData(&random, options.executor.problem, plan);
    const RunResult want = RunPlan(plan, data, options);
    const auto pools = PoolOfThreads(plan.ranks);
    options.change_parts = [&](int32_t rank, RankParts* parts) {
      HostPool* const pool = pools[static_cast<size_t>(rank)].get();
      parts->communicators = pool->communicators();
      parts->agreement = pool->agreement();
    };
    const RunResult got = RunPlan(plan, data, options);
    for (const Status& status : got.statuses) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
    CHECK(SameBits(want, got));
  }
}

TEST_CASE("HostPool: a device that failed ends the others' waits",
          "[host][executor]") {
  const auto pools = PoolOfThreads(3);
  std::vector<std::future<Status>> ranks;
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> Status {
      CommunicatorSet* const set = pools[rank]->communicators();
      const Block all{0, 3};
      SKRULL_EXEC_RETURN_IF_ERROR(set->Announce({&all, 1}));
      if (rank != 1) return GatherOnce(set);
      set->Abort({StatusCode::kDeviceError, "a kernel"});
      return set->Poll();
    }));
  }
  for (auto& rank : ranks) {
    CHECK(rank.get() ==
          Status(StatusCode::kAborted, "rank 1: DEVICE_ERROR: a kernel"));
  }
}

TEST_CASE("Mesh: strangers at the door neither enter nor delay",
          "[host][mesh]") {
  constexpr int32_t kSize = 3;
  Offer offer;
  std::atomic<bool> done = false;
  // Connections with every kind of wrong greeting, before and between the
  // ranks'.
  std::jthread strangers([&] {
    std::istringstream words(offer.future.get());
    std::string magic, token, address;
    words >> magic >> token >> address;
    std::minstd_rand random(1);
    std::vector<Fd> silent;
    while (!done) {
      const auto soon = std::chrono::steady_clock::now() + milliseconds(200);
      Result<Fd> fd = Connect(address, soon);
      if (!fd.ok()) break;  // the door was closed
      std::string noise(random() % 2000, '\0');
      for (char& c : noise) c = static_cast<char>(random());
      if (random() % 2 == 0) noise = "SKRHELO1" + noise;
      (void)SendAll(*fd, noise.data(), noise.size(), soon);
      if (noise.size() < 500) silent.push_back(*std::move(fd));
    }
  });
  std::vector<std::future<Result<std::vector<Fd>>>> ranks;
  for (int32_t rank = 0; rank < kSize; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      if (rank > 0) std::this_thread::sleep_for(milliseconds(100 * rank));
      return ConnectMesh(
          {.rank = rank, .size = kSize, .time_limit = seconds(30)},
          offer.For(rank));
    }));
  }
  for (int32_t rank = 0; rank < kSize; ++rank) {
    const auto fds = ranks[static_cast<size_t>(rank)].get();
    INFO(fds.status().ToString());
    REQUIRE(fds.ok());
    for (int32_t peer = 0; peer < kSize; ++peer) {
      CHECK((*fds)[static_cast<size_t>(peer)].open() == (peer != rank));
    }
  }
  done = true;
}

TEST_CASE("Mesh: ranks that do not come, or come wrong, are named",
          "[host][mesh]") {
  const auto connect = [](int32_t rank, int32_t size, Rendezvous rendezvous) {
    return ConnectMesh(
               {.rank = rank, .size = size, .time_limit = milliseconds(500)},
               rendezvous)
        .status();
  };
  const Rendezvous echo = [](const std::string& offer) -> Result<std::string> {
    return offer;
  };
  const Status missing = connect(0, 3, echo);
  CHECK(missing.code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(missing.message(), Catch::EndsWith("of rank 1, 2"));

  {
    Offer offer;
    auto zero = std::async(std::launch::async,
                           [&] { return connect(0, 2, offer.For(0)); });
    auto other = std::async(std::launch::async,
                            [&] { return connect(2, 3, offer.For(2)); });
    CHECK(zero.get() == Status(StatusCode::kCommFailed,
                               "rank 2 of 3 connected to rank 0 of 2"));
    CHECK_FALSE(other.get().ok());
  }
  CHECK(connect(1, 2, [](const std::string&) -> Result<std::string> {
          return std::string("GET / HTTP/1.1");
        }).code() == StatusCode::kCommFailed);
  CHECK(connect(0, 2, [](const std::string&) -> Result<std::string> {
          return Status(StatusCode::kDeadlineExceeded, "alone");
        }) == Status(StatusCode::kDeadlineExceeded, "alone"));
  CHECK(connect(2, 2, echo).code() == StatusCode::kInvalidArgument);
  CHECK(connect(0, 1, echo).ok());
  CHECK(ConnectMesh({.host = "no such host.invalid"}, echo).status().code() ==
        StatusCode::kCommFailed);
}

}  // namespace
}  // namespace skrull::exec::testing
