// NCCL's unique id by way of a real daemon; NCCL itself is a fake.
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/client/planner_client.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/nccl_pool.h"
#include "skrull/tests/cuda/fake_nccl.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::exec::testing {
namespace {

constexpr int32_t kRanks = 3;

constexpr const char* kSpec = R"(
  model {
    hidden_size: 64 layer_count: 2 attention_head_count: 4 kv_head_count: 2
    head_dim: 16 intermediate_size: 128 vocab_size: 256
  }
  parallelism { dp_size: 1 cp_size: 3 ranks_per_node: 3 }
  memory { bucket_size_tokens: 1024 }
  cost { seconds_per_flop: 1e-12 }
)";

using PoolOr = Result<std::unique_ptr<NcclPool>>;

TEST_CASE("NcclPool: the daemon carries the unique id to all ranks",
          "[nccl][daemon]") {
  skrull::testing::Daemon daemon;
  auto client = PlannerClient::Create({.address = daemon.address()});
  REQUIRE(client.ok());
  const auto created = (*client)->CreateJob("run", kSpec);
  INFO(created.status());
  REQUIRE(created.ok());

  FakeNccl nccl;
  InProcessPool control(kRanks);
  std::vector<std::string> ids(kRanks);
  const auto connect = [&](int32_t rank) -> PoolOr {
    return NcclPool::Create(
        {}, &nccl, control.communicators(rank),
        [&, rank](const std::string& offer) -> Result<std::string> {
          const auto answer = (*client)->Rendezvous({.job = "run",
                                                     .key = "nccl",
                                                     .size = kRanks,
                                                     .rank = rank,
                                                     .offer = offer});
          if (!answer.ok()) {
            return Status(StatusCode::kCommFailed, answer.status().ToString());
          }
          ids[static_cast<size_t>(rank)] = *answer;
          return *answer;
        });
  };
  std::vector<std::future<PoolOr>> ranks;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::async(std::launch::async, connect, rank));
  }
  std::vector<std::unique_ptr<NcclPool>> pools;
  for (auto& rank : ranks) {
    PoolOr pool = rank.get();
    INFO(pool.status().ToString());
    REQUIRE(pool.ok());
    pools.push_back(*std::move(pool));
  }
  CHECK(ids[0].size() == sizeof(NcclId));
  CHECK(ids[1] == ids[0]);
  CHECK(ids[2] == ids[0]);
  CHECK(nccl.counts().communicators == kRanks);
}

}  // namespace
}  // namespace skrull::exec::testing
