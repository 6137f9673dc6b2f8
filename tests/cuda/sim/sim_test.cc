// The simulator of CUDA: right kernels give CUDA's results in every order, and
// wrong ones are told.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/sim/sanitizers.h"
#include "skrull/tests/cuda/sim/sim_kernels.cuh"

namespace skrull::exec::testing {
namespace {

constexpr Stream kNow{};

std::vector<int> Sums(const std::vector<int>& in, unsigned threads,
                      bool synchronised) {
  const auto blocks = static_cast<unsigned>(in.size()) / threads;
  std::vector<int> out(blocks);
  const int64_t shared = int64_t{threads} * 4;
  const Status status =
      synchronised ? SKRULL_LAUNCH((SumBlock<true>), blocks, threads, shared,
                                   kNow, in.data(), out.data())
                   : SKRULL_LAUNCH((SumBlock<false>), blocks, threads, shared,
                                   kNow, in.data(), out.data());
  CHECK(status.ToString() == "OK");
  return out;
}

}  // namespace

TEST_CASE("Sim: barriers order the threads of a block", "[sim]") {
  constexpr unsigned kThreads = 64;
  std::vector<int> in(3 * kThreads);
  std::iota(in.begin(), in.end(), 1);
  const std::vector<int> right = {64 * 65 / 2, 64 * (65 + 128) / 2,
                                  64 * (129 + 192) / 2};
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    sim::SetOrderSeed(seed);
    CHECK(Sums(in, kThreads, true) == right);
    if (Sums(in, kThreads, false) != right) ++wrong;
  }
  // Without barriers a random order is all but never the right one.
  CHECK(wrong == 20);
}

TEST_CASE("Sim: a warp's lanes exchange values", "[sim]") {
  constexpr int kThreads = 64;
  std::vector<int> out(4 * kThreads);
  REQUIRE(SKRULL_LAUNCH(TryWarpOperations, 1, kThreads, 0, kNow, out.data())
              .ToString() == "OK");
  unsigned thirds[2] = {0, 0};
  for (int t = 0; t < kThreads; t += 3) thirds[t / 32] |= 1U << (t % 32);
  for (int t = 0; t < kThreads; ++t) {
    CAPTURE(t);
    const int base = 100 * (t / 32);
    const int lane = t % 32;
    const auto at = [&](int array) {
      return out[static_cast<size_t>(array * kThreads + t)];
    };
    CHECK(at(0) == base + 5);
    CHECK(at(1) == base + (lane ^ 3));
    CHECK(at(2) == base + (lane < 2 ? lane + 30 : lane));
    CHECK(at(3) == static_cast<int>(thirds[t / 32]));
  }
}

TEST_CASE("Sim: parts of a warp meet apart", "[sim]") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    sim::SetOrderSeed(seed);
    std::vector<int> out(32);
    REQUIRE(
        SKRULL_LAUNCH(MeetInHalves, 1, 32, 0, kNow, out.data()).ToString() ==
        "OK");
    for (int t = 0; t < 32; ++t) {
      CHECK(out[static_cast<size_t>(t)] == (t < 16 ? 17 : 3 + ((t - 16) ^ 1)));
    }
  }
}

TEST_CASE("Sim: a barrier waits for no thread that has returned", "[sim]") {
  std::vector<int> out(64);
  REQUIRE(
      SKRULL_LAUNCH(ReturnEarly, 1, 64, 0, kNow, 40U, out.data()).ToString() ==
      "OK");
  CHECK(std::accumulate(out.begin(), out.end(), 0) == 40);
}

TEST_CASE("Sim: every thread of a grid runs once", "[sim]") {
  std::vector<int> visits(size_t{2 * 3 * 4 * 5 * 3 * 2});
  REQUIRE(SKRULL_LAUNCH(CountVisits, dim3(2, 3, 4), dim3(5, 3, 2), 0, kNow,
                        visits.data())
              .ToString() == "OK");
  CHECK(std::ranges::count(visits, 1) == static_cast<int64_t>(visits.size()));
}

TEST_CASE("Sim: the seed gives the order", "[sim]") {
  const auto order_of = [](uint64_t seed) {
    sim::SetOrderSeed(seed);
    std::vector<int> order(4 * 32);
    int count = 0;
    CHECK(SKRULL_LAUNCH(KeepOrder, 4, 32, 0, kNow, order.data(), &count)
              .ToString() == "OK");
    return order;
  };
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) orders.insert(order_of(seed));
  CHECK(orders.size() == 8);
  CHECK(order_of(3) == order_of(3));
  std::vector<int> sorted = order_of(5);
  std::ranges::sort(sorted);
  for (int i = 0; i < 128; ++i) CHECK(sorted[static_cast<size_t>(i)] == i);
}

TEST_CASE("Sim: shared memory is poison for each block", "[sim]") {
  std::vector<int> out(32);
  for (int run = 0; run < 2; ++run) {
    std::ranges::fill(out, 0);
    REQUIRE(
        SKRULL_LAUNCH(ReadShared, 3, 32, 32 * 4, kNow, out.data()).ToString() ==
        "OK");
    CHECK(std::accumulate(out.begin(), out.end(), 0) == 32);
  }
}

TEST_CASE("Sim: kernels that go wrong are told", "[sim]") {
  std::vector<int> out(64);
  const auto contains = [](const Status& status, const std::string& text) {
    CAPTURE(status.ToString(), text);
    CHECK(status.code() == StatusCode::kInternal);
    CHECK(status.message().find(text) != std::string::npos);
  };
  contains(SKRULL_LAUNCH(Diverge, 1, 64, 0, kNow, 16U),
           "kernel Diverge: block (0, 0, 0): deadlock: of 32 live threads, 16 "
           "wait in __syncthreads at sim_kernels.cuh:");
  contains(SKRULL_LAUNCH(MeetElsewhere, 1, 64, 0, kNow),
           "threads meet in different barriers: of 64 live threads, 32 wait");
  contains(SKRULL_LAUNCH(MixOperations, 1, 32, 0, kNow, out.data()),
           "lanes meet in different operations");
  contains(SKRULL_LAUNCH(ReadTheGone, 1, 32, 0, kNow, out.data()),
           "a shuffle reads a lane that is not there");
  contains(SKRULL_LAUNCH(MeetUnnamed, 1, 32, 0, kNow),
           "lane 0 does not name itself");
  // And the next is run as if nothing had been.
  REQUIRE(
      SKRULL_LAUNCH(ReturnEarly, 1, 64, 0, kNow, 64U, out.data()).ToString() ==
      "OK");
}

TEST_CASE("Sim: shared memory has the bytes of the launch", "[sim]") {
  CHECK(SKRULL_LAUNCH(WriteShared, 1, 32, 40, kNow, 9).ToString() == "OK");
#ifndef SKRULL_SIM_ASAN  // it ends the program at once
  for (const int index : {10, 100}) {
    const Status status = SKRULL_LAUNCH(WriteShared, 1, 32, 40, kNow, index);
    CHECK(status.message().find("behind the dynamic shared memory") !=
          std::string::npos);
  }
#endif
}

TEST_CASE("Sim: what CUDA would refuse is refused", "[sim]") {
  const auto refused = [](const Status& status, const std::string& text) {
    CAPTURE(status.ToString(), text);
    CHECK(status.code() == StatusCode::kDeviceError);
    CHECK(status.message().find(text) != std::string::npos);
  };
  refused(SKRULL_LAUNCH(MeetElsewhere, 0, 32, 0, kNow),
          "launch of MeetElsewhere: a grid of 0 x 1 x 1 blocks");
  refused(SKRULL_LAUNCH(MeetElsewhere, dim3(1, 65536), 32, 0, kNow), "a grid");
  refused(SKRULL_LAUNCH(MeetElsewhere, 1, 1025, 0, kNow),
          "a block of 1025 x 1 x 1 threads");
  refused(SKRULL_LAUNCH(MeetElsewhere, 1, dim3(1, 1, 65), 0, kNow), "a block");
  refused(SKRULL_LAUNCH(MeetElsewhere, 1, 32, (99 << 10) + 1, kNow),
          "101377 bytes of shared memory");
}

TEST_CASE("Sim: a launch is ordered on its stream", "[sim]") {
  CpuDevice device;
  Result<Stream> stream = device.CreateStream(StreamPriority::kNormal);
  REQUIRE(stream.ok());
  std::vector<int> in(64, 1);
  std::vector<int> middle(2);
  std::vector<int> out(1);
  CHECK(SKRULL_LAUNCH((SumBlock<true>), 2, 32, 128, *stream, in.data(),
                      middle.data())
            .ok());
  CHECK(SKRULL_LAUNCH((SumBlock<true>), 1, 2, 8, *stream, middle.data(),
                      out.data())
            .ok());
  CHECK(device.Synchronize(*stream).ToString() == "OK");
  CHECK(out[0] == 64);

  // A failure is the device's, and what follows does not run.
  CHECK(SKRULL_LAUNCH(MeetElsewhere, 1, 32, 0, *stream).ok());
  CHECK(SKRULL_LAUNCH((SumBlock<true>), 1, 2, 8, *stream, in.data(), out.data())
            .ok());
  CHECK(device.Synchronize(*stream).message().find("kernel MeetElsewhere") !=
        std::string::npos);
  CHECK(out[0] == 64);
  device.DestroyStream(*stream);
}

}  // namespace skrull::exec::testing
