// Ranks as threads: what they exchange, and how they fail together.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/in_process/in_process_pool.h"

namespace skrull::exec::testing {
namespace {

// What a rank of a test has.
struct Rank {
  int32_t rank;
  CommunicatorSet* set;
  StepAgreement* agreement;
  CpuDevice device;
  Stream stream;

  Communicator* Find(Block block) { return *set->Find(block); }
  Status Finish() { return device.Synchronize(stream); }
};

// Runs `body` for each rank, and returns what it returned.
std::vector<Status> OnRanks(InProcessPool* pool, int32_t count,
                            const std::function<Status(Rank*)>& body) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{.rank = r,
                .set = pool->communicators(r),
                .agreement = pool->agreement(r),
                .device = CpuDevice(),
                .stream = {}};
      rank.stream = *rank.device.CreateStream(StreamPriority::kNormal);
      statuses[static_cast<size_t>(r)] = body(&rank);
      (void)rank.Finish();
      rank.device.DestroyStream(rank.stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

constexpr auto kLong = std::chrono::seconds(60);

}  // namespace

TEST_CASE("InProcessPool: gathers, sums and shifts", "[in_process]") {
  const int32_t ranks = 5;
  InProcessPool pool(ranks, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 5}, {1, 3}};
  const auto statuses = OnRanks(&pool, ranks, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    for (int round = 0; round < 20; ++round) {
      for (const Block& block : blocks) {
        const int32_t r = self->rank - block.first_rank;
        if (r < 0 || r >= block.degree) continue;
        const auto g = static_cast<size_t>(block.degree);
        Communicator* comm = self->Find(block);
        if (comm->rank() != r || comm->size() != block.degree) {
          return InvalidArgument("rank or size");
        }
        const auto value = [&](size_t rank, size_t i) {
          return static_cast<float>(100 * rank + 10 * i) +
                 static_cast<float>(round);
        };
        const auto me = static_cast<size_t>(r);
        std::vector<float> mine(2 * g);
        for (size_t i = 0; i < mine.size(); ++i) mine[i] = value(me, i);
        std::vector<float> all(2 * g * g);
        std::vector<float> sum(2);
        std::vector<float> shifted(2 * g);
        SKRULL_EXEC_RETURN_IF_ERROR(comm->AllGather(mine.data(), all.data(),
                                                    static_cast<int64_t>(8 * g),
                                                    self->stream));
        SKRULL_EXEC_RETURN_IF_ERROR(comm->ReduceScatter(
            mine.data(), sum.data(), 2, DType::kFloat32, self->stream));
        SKRULL_EXEC_RETURN_IF_ERROR(comm->Shift(mine.data(), shifted.data(),
                                                static_cast<int64_t>(8 * g),
                                                self->stream));
        SKRULL_EXEC_RETURN_IF_ERROR(self->Finish());
        for (size_t from = 0; from < g; ++from) {
          for (size_t i = 0; i < 2 * g; ++i) {
            if (all[from * 2 * g + i] != value(from, i)) {
              return InvalidArgument("gathered");
            }
          }
        }
        for (size_t i = 0; i < 2; ++i) {
          float want = 0;
          for (size_t from = 0; from < g; ++from) {
            want += value(from, 2 * me + i);
          }
          if (sum[i] != want) return InvalidArgument("summed");
          if (shifted[i] != value((me + g - 1) % g, i)) {
            return InvalidArgument("shifted");
          }
        }
      }
    }
    return {};
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "OK");
}

// 1 + 1/256 + 1/256: in bfloat16 each addend alone rounds away.
TEST_CASE("InProcessPool: sums of bfloat16 round once", "[in_process]") {
  InProcessPool pool(3, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 3}};
  const auto statuses = OnRanks(&pool, 3, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    const BFloat16 value(self->rank == 0 ? 1.0F : 0x1p-8F);
    std::vector<BFloat16> mine(3, value);
    BFloat16 sum;
    SKRULL_EXEC_RETURN_IF_ERROR(self->Find(blocks[0])->ReduceScatter(
        mine.data(), &sum, 1, DType::kBFloat16, self->stream));
    SKRULL_EXEC_RETURN_IF_ERROR(self->Finish());
    if (static_cast<float>(sum) == 1.0F + 0x1p-7F) return {};
    return InvalidArgument(std::to_string(static_cast<float>(sum)));
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "OK");
}

TEST_CASE("InProcessPool: calls that differ fail on all ranks",
          "[in_process]") {
  InProcessPool pool(3, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 3}};
  const auto statuses = OnRanks(&pool, 3, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    std::vector<char> mine(64);
    std::vector<char> all(256);
    SKRULL_EXEC_RETURN_IF_ERROR(self->Find(blocks[0])->AllGather(
        mine.data(), all.data(), self->rank == 1 ? 32 : 64, self->stream));
    return self->Finish();
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == StatusCode::kCommFailed);
    CHECK(status.message() ==
          "ranks differ: rank 0 came with an all-gather of 64 bytes, rank 1 "
          "with an all-gather of 32 bytes");
  }
  CHECK_FALSE(pool.communicators(2)->Poll().ok());
}

TEST_CASE("InProcessPool: another kind of call fails, too", "[in_process]") {
  InProcessPool pool(2, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 2}};
  const auto statuses = OnRanks(&pool, 2, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    std::vector<float> mine(4);
    std::vector<float> got(8);
    Communicator* comm = self->Find(blocks[0]);
    SKRULL_EXEC_RETURN_IF_ERROR(
        self->rank == 0 ? comm->Shift(mine.data(), got.data(), 8, self->stream)
                        : comm->ReduceScatter(mine.data(), got.data(), 2,
                                              DType::kFloat32, self->stream));
    return self->Finish();
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == StatusCode::kCommFailed);
  }
}

TEST_CASE("InProcessPool: a rank that does not come is named", "[in_process]") {
  InProcessPool pool(3, {.time_limit = std::chrono::milliseconds(50),
                         .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 3}, {0, 2}};
  // All announce first; then rank 2 stays away.
  const auto statuses = OnRanks(&pool, 3, [&](Rank* self) -> Status {
    Status announced = self->set->Announce(blocks);
    if (!announced.ok() || self->rank == 2) return announced;
    std::vector<char> mine(8);
    std::vector<char> all(24);
    SKRULL_EXEC_RETURN_IF_ERROR(self->Find(blocks[0])->AllGather(
        mine.data(), all.data(), 8, self->stream));
    return self->Finish();
  });
  for (size_t r = 0; r < 2; ++r) {
    CHECK(statuses[r].code() == StatusCode::kDeadlineExceeded);
    CHECK_THAT(statuses[r].message(), Catch::Contains("for rank 2"));
  }
  CHECK(pool.communicators(2)->Poll().code() == StatusCode::kDeadlineExceeded);
}

TEST_CASE("InProcessPool: an abort releases ranks in any block",
          "[in_process]") {
  InProcessPool pool(4, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 2}, {2, 2}};
  const auto statuses = OnRanks(&pool, 4, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    if (self->rank == 1) {
      self->set->Abort({StatusCode::kDeviceError, "lost its power"});
      return self->set->Poll();
    }
    std::vector<char> mine(8);
    std::vector<char> all(24);
    if (self->rank == 3) return self->set->Poll();
    // Rank 0 waits for rank 1, rank 2 for rank 3: neither comes.
    SKRULL_EXEC_RETURN_IF_ERROR(
        self->Find(blocks[self->rank == 0 ? 0 : 1])
            ->AllGather(mine.data(), all.data(), 8, self->stream));
    return self->Finish();
  });
  for (const size_t r : {size_t{0}, size_t{1}, size_t{2}}) {
    CHECK(statuses[r] ==
          Status(StatusCode::kAborted, "rank 1: DEVICE_ERROR: lost its power"));
  }
}

TEST_CASE("InProcessPool: a failed device still enters, and all fail",
          "[in_process]") {
  InProcessPool pool(2, {.time_limit = kLong, .poison_buffers = false});
  const std::vector<Block> blocks = {{0, 2}};
  const auto statuses = OnRanks(&pool, 2, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    if (self->rank == 0) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          EnqueueOnHost(self->stream, [](const Status&) {
            return Status(StatusCode::kDeviceError, "burnt");
          }));
    }
    std::vector<char> mine(8);
    std::vector<char> all(16);
    SKRULL_EXEC_RETURN_IF_ERROR(self->Find(blocks[0])->AllGather(
        mine.data(), all.data(), 8, self->stream));
    return self->Finish();
  });
  CHECK(statuses[0] == Status(StatusCode::kDeviceError, "burnt"));
  CHECK(statuses[1] ==
        Status(StatusCode::kAborted, "rank 0: DEVICE_ERROR: burnt"));
}

TEST_CASE("InProcessPool: plans that differ end nothing", "[in_process]") {
  InProcessPool pool(3, {.time_limit = kLong, .poison_buffers = false});
  const auto statuses = OnRanks(&pool, 3, [&](Rank* self) {
    return self->agreement->Agree(self->rank == 1 ? "b" : "a");
  });
  for (const Status& status : statuses) {
    CHECK(status == Status(StatusCode::kFailedPrecondition,
                           "ranks differ: rank 0 came with plan a, rank 1 "
                           "with plan b"));
  }
  for (const Status& status : OnRanks(
           &pool, 3, [&](Rank* self) { return self->agreement->Agree("c"); })) {
    CHECK(status.ok());
  }
  for (const Status& status : OnRanks(&pool, 3, [&](Rank* self) {
         const std::vector<Block> two = {{0, 2}};
         const std::vector<Block> three = {{0, 3}};
         return self->set->Announce(self->rank == 0 ? two : three);
       })) {
    CHECK(status.code() == StatusCode::kFailedPrecondition);
  }
}

TEST_CASE("InProcessPool: names a communicator that is not there",
          "[in_process]") {
  InProcessPool pool(2, {.time_limit = kLong, .poison_buffers = false});
  CHECK(pool.communicators(1)->Find({0, 2}).status() ==
        Status(StatusCode::kNotFound,
               "rank 1 has no communicator of ranks [0, 2)"));
  const std::vector<Block> outside = {{1, 2}};
  CHECK(pool.communicators(0)->Announce(outside).code() ==
        StatusCode::kInvalidArgument);
}

}  // namespace skrull::exec::testing
