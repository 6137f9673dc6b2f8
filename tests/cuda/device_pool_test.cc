// Virtual ranks on one device: what they exchange, and how they fail together.
#include "skrull/cuda/in_process/device_pool.h"

#include <atomic>
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
#include "skrull/tests/cuda/random_order_device.h"

namespace skrull::exec::testing {
namespace {

constexpr auto kLong = std::chrono::seconds(60);

// What a rank of a test has.
struct Rank {
  int32_t rank;
  CommunicatorSet* set;
  StepAgreement* agreement;
  Device* device;
  Stream stream;

  Communicator* Find(Block block) { return *set->Find(block); }
  Status Finish() { return device->Synchronize(stream); }
};

// Runs `body` for each rank, and returns what it returned.
std::vector<Status> OnRanks(DevicePool* pool, Device* device, int32_t count,
                            const std::function<Status(Rank*)>& body) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{.rank = r,
                .set = pool->communicators(r),
                .agreement = pool->agreement(r),
                .device = device,
                .stream = *device->CreateStream(StreamPriority::kNormal)};
      statuses[static_cast<size_t>(r)] = body(&rank);
      (void)rank.Finish();
      device->DestroyStream(rank.stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

float ValueOf(int32_t rank, size_t i, int round) {
  return static_cast<float>(100 * rank + 10 * static_cast<int>(i) + round);
}

// A rank's rounds of collectives on one block, all enqueued before the first is
// waited for; the buffers of a round are those of the last.
Status ExchangeOnBlock(Rank* self, Block block) {
  constexpr int kRounds = 12;
  Communicator* comm = self->Find(block);
  const int32_t me = self->rank - block.first_rank;
  const auto g = static_cast<size_t>(block.degree);
  if (comm->rank() != me || comm->size() != block.degree) {
    return InvalidArgument("rank or size");
  }
  std::vector<float> send(2 * g), all(2 * g * g), sum(2), shifted(2 * g);
  std::atomic<int> wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    // Overwrites what the others have just read.
    SKRULL_EXEC_RETURN_IF_ERROR(
        EnqueueOnHost(self->stream, [&, round](const Status&) {
          for (size_t i = 0; i < send.size(); ++i) {
            send[i] = ValueOf(me, i, round);
          }
          return Status();
        }));
    const auto bytes = static_cast<int64_t>(4 * send.size());
    SKRULL_EXEC_RETURN_IF_ERROR(
        comm->AllGather(send.data(), all.data(), bytes, self->stream));
    SKRULL_EXEC_RETURN_IF_ERROR(comm->ReduceScatter(
        send.data(), sum.data(), 2, DType::kFloat32, self->stream));
    SKRULL_EXEC_RETURN_IF_ERROR(
        comm->Shift(send.data(), shifted.data(), bytes, self->stream));
    SKRULL_EXEC_RETURN_IF_ERROR(
        EnqueueOnHost(self->stream, [&, round](const Status&) {
          for (int32_t from = 0; from < block.degree; ++from) {
            for (size_t i = 0; i < 2 * g; ++i) {
              const float got = all[static_cast<size_t>(from) * 2 * g + i];
              if (got != ValueOf(from, i, round)) ++wrong;
            }
          }
          const int32_t before = (me + block.degree - 1) % block.degree;
          for (size_t i = 0; i < 2 * g; ++i) {
            if (shifted[i] != ValueOf(before, i, round)) ++wrong;
          }
          for (size_t i = 0; i < 2; ++i) {
            float want = 0;
            for (int32_t from = 0; from < block.degree; ++from) {
              want += ValueOf(from, 2 * static_cast<size_t>(me) + i, round);
            }
            if (sum[i] != want) ++wrong;
          }
          return Status();
        }));
  }
  SKRULL_EXEC_RETURN_IF_ERROR(self->Finish());
  if (wrong == 0) return {};
  return InvalidArgument(std::to_string(wrong) + " wrong values");
}

void CheckExchanges(Device* device) {
  const int32_t ranks = 5;
  DevicePool pool(ranks, device, {.time_limit = kLong});
  const std::vector<Block> blocks = {{0, 5}, {1, 3}, {4, 1}};
  const auto statuses =
      OnRanks(&pool, device, ranks, [&](Rank* self) -> Status {
        SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
        for (const Block& block : blocks) {
          if (self->rank < block.first_rank ||
              self->rank >= block.first_rank + block.degree) {
            continue;
          }
          SKRULL_EXEC_RETURN_IF_ERROR(ExchangeOnBlock(self, block));
        }
        return {};
      });
  for (const Status& status : statuses) CHECK(status.ToString() == "OK");
}

}  // namespace

TEST_CASE("DevicePool: gathers, sums and shifts", "[device_pool]") {
  SECTION("streams as threads") {
    CpuDevice device;
    CheckExchanges(&device);
  }
  SECTION("ready work in random orders") {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      INFO("seed " << seed);
      RandomOrderDevice device(seed);
      CheckExchanges(&device);
    }
  }
}

// 1 + 1/256 + 1/256: in bfloat16 each addend alone rounds away.
TEST_CASE("DevicePool: sums of bfloat16 round once", "[device_pool]") {
  CpuDevice device;
  DevicePool pool(3, &device, {.time_limit = kLong});
  const std::vector<Block> blocks = {{0, 3}};
  const auto statuses = OnRanks(&pool, &device, 3, [&](Rank* self) -> Status {
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

TEST_CASE("DevicePool: the host waits for hosts, never for the device",
          "[device_pool]") {
  CpuDevice device;
  DevicePool pool(2, &device, {.time_limit = kLong});
  const std::vector<Block> blocks = {{0, 2}};
  std::atomic<int> returned = 0;
  const auto statuses = OnRanks(&pool, &device, 2, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    // No stream goes on before both ranks' calls have returned.
    SKRULL_EXEC_RETURN_IF_ERROR(EnqueueOnHost(self->stream, [&](const Status&) {
      while (returned < 2) std::this_thread::yield();
      return Status();
    }));
    const int32_t mine = self->rank + 1;
    std::vector<int32_t> all(2);
    Communicator* comm = self->Find(blocks[0]);
    Status status = comm->AllGather(&mine, all.data(), 4, self->stream);
    ++returned;
    SKRULL_EXEC_RETURN_IF_ERROR(status);
    SKRULL_EXEC_RETURN_IF_ERROR(self->Finish());
    return all == std::vector<int32_t>{1, 2} ? Status() : InvalidArgument("");
  });
  for (const Status& status : statuses) CHECK(status.ToString() == "OK");
}

TEST_CASE("DevicePool: calls that differ fail on all ranks", "[device_pool]") {
  CpuDevice device;
  DevicePool pool(3, &device, {.time_limit = kLong});
  const std::vector<Block> blocks = {{0, 3}};
  const auto statuses = OnRanks(&pool, &device, 3, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    std::vector<char> mine(64);
    std::vector<char> all(256);
    return self->Find(blocks[0])->AllGather(
        mine.data(), all.data(), self->rank == 1 ? 32 : 64, self->stream);
  });
  for (const Status& status : statuses) {
    CHECK(status ==
          Status(StatusCode::kCommFailed,
                 "ranks differ: rank 0 came with an all-gather of 64 bytes, "
                 "rank 1 with an all-gather of 32 bytes"));
  }
}

TEST_CASE("DevicePool: a rank that does not come is named", "[device_pool]") {
  CpuDevice device;
  DevicePool pool(3, &device, {.time_limit = std::chrono::milliseconds(50)});
  const std::vector<Block> blocks = {{0, 3}};
  const auto statuses = OnRanks(&pool, &device, 3, [&](Rank* self) -> Status {
    Status announced = self->set->Announce(blocks);
    if (!announced.ok() || self->rank == 2) return announced;
    std::vector<char> mine(8);
    std::vector<char> all(24);
    return self->Find(blocks[0])->AllGather(mine.data(), all.data(), 8,
                                            self->stream);
  });
  for (size_t r = 0; r < 2; ++r) {
    CHECK(statuses[r].code() == StatusCode::kDeadlineExceeded);
    CHECK_THAT(statuses[r].message(), Catch::Contains("for rank 2"));
  }
}

TEST_CASE("DevicePool: an abort releases ranks in any block", "[device_pool]") {
  CpuDevice device;
  DevicePool pool(4, &device, {.time_limit = kLong});
  const std::vector<Block> blocks = {{0, 2}, {2, 2}};
  const auto statuses = OnRanks(&pool, &device, 4, [&](Rank* self) -> Status {
    SKRULL_EXEC_RETURN_IF_ERROR(self->set->Announce(blocks));
    std::vector<char> mine(8);
    std::vector<char> all(24);
    // Rank 0 waits for rank 1, rank 2 for rank 3: neither comes.
    if (self->rank == 1) {
      self->set->Abort({StatusCode::kDeviceError, "lost its power"});
    }
    if (self->rank % 2 == 1) return self->set->Poll();
    return self->Find(blocks[self->rank == 0 ? 0 : 1])
        ->Shift(mine.data(), all.data(), 8, self->stream);
  });
  for (const size_t r : {size_t{0}, size_t{1}, size_t{2}}) {
    CHECK(statuses[r] ==
          Status(StatusCode::kAborted, "rank 1: DEVICE_ERROR: lost its power"));
  }
  CHECK_FALSE(pool.communicators(3)->Poll().ok());
}

TEST_CASE("DevicePool: a block has no more ranks than a sum has addends",
          "[device_pool]") {
  CpuDevice device;
  constexpr int32_t kRanks = kMaxAddends + 1;
  DevicePool pool(kRanks, &device, {.time_limit = kLong});
  std::vector<std::thread> threads;
  std::vector<Status> statuses(kRanks);
  for (int32_t r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      const std::vector<Block> blocks = {{0, kRanks}};
      statuses[static_cast<size_t>(r)] =
          pool.communicators(r)->Announce(blocks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    CHECK(status == Status(StatusCode::kUnsupported,
                           "a block of 65 ranks on one device, which adds 64"));
  }
}

}  // namespace skrull::exec::testing
