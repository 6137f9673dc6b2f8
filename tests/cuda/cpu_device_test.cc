// Streams and events of the CPU device.
#include "skrull/cuda/cpu/cpu_device.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/cpu/worker_pool.h"
#include "skrull/cuda/host_queue.h"

namespace skrull::exec::testing {
namespace {

// A stream that goes when the test ends.
class TestStream {
 public:
  explicit TestStream(Device* device)
      : device_(device),
        stream_(*device->CreateStream(StreamPriority::kNormal)) {}
  ~TestStream() { device_->DestroyStream(stream_); }
  Stream get() const { return stream_; }
  void Do(std::function<void()> work) const {
    REQUIRE(EnqueueOnHost(stream_, [work = std::move(work)](const Status&) {
              work();
              return Status();
            }).ok());
  }

 private:
  Device* const device_;
  const Stream stream_;
};

}  // namespace

TEST_CASE("CpuDevice: a stream is in order, streams run side by side",
          "[cpu_device]") {
  CpuDevice device;
  const TestStream a(&device);
  const TestStream b(&device);
  std::vector<int> order;
  std::atomic<bool> b_ran = false;
  // a waits, in a task, for b: only possible if both run at the same time.
  a.Do([&] {
    while (!b_ran) std::this_thread::yield();
    order.push_back(1);
  });
  a.Do([&] { order.push_back(2); });
  b.Do([&] { b_ran = true; });
  REQUIRE(device.Synchronize(a.get()).ok());
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("CpuDevice: a wait is for the record before it", "[cpu_device]") {
  CpuDevice device;
  const TestStream a(&device);
  const TestStream b(&device);
  const Event event = *device.CreateEvent();
  REQUIRE(*device.Query(event));  // never recorded
  REQUIRE(device.Wait(b.get(), event).ok());

  std::atomic<bool> open = false;
  std::atomic<int> value = 0;
  int seen = -1;
  a.Do([&] {
    while (!open) std::this_thread::yield();
    value = 1;
  });
  REQUIRE(device.Record(event, a.get()).ok());
  REQUIRE(device.Wait(b.get(), event).ok());
  // A later record does not delay the wait: this one is after `again`.
  std::atomic<bool> again = false;
  a.Do([&] {
    while (!again) std::this_thread::yield();
  });
  REQUIRE(device.Record(event, a.get()).ok());
  b.Do([&] { seen = value; });
  CHECK_FALSE(*device.Query(event));
  open = true;
  REQUIRE(device.Synchronize(b.get()).ok());
  CHECK(seen == 1);
  CHECK_FALSE(*device.Query(event));
  again = true;
  REQUIRE(device.HostWait(event).ok());
  CHECK(*device.Query(event));
  device.DestroyEvent(event);
}

TEST_CASE("CpuDevice: the first failure stays, and later work is skipped",
          "[cpu_device]") {
  CpuDevice device;
  const TestStream a(&device);
  const auto fail = [&](const char* text) {
    REQUIRE(EnqueueOnHost(a.get(), [text](const Status&) {
              return Status(StatusCode::kDeviceError, text);
            }).ok());
  };
  char byte = 1;
  fail("first");
  fail("second");
  REQUIRE(device.Zero(&byte, 1, a.get()).ok());
  Status told;
  REQUIRE(EnqueueOnHost(a.get(), [&](const Status& status) {
            told = status;
            return Status();
          }).ok());
  const Event event = *device.CreateEvent();
  REQUIRE(device.Record(event, a.get()).ok());
  CHECK(device.HostWait(event).message() == "first");  // still completes
  CHECK(device.Synchronize(a.get()).message() == "first");
  CHECK(device.Poll().message() == "first");
  CHECK(told.message() == "first");
  CHECK(byte == 1);
  device.DestroyEvent(event);
}

TEST_CASE("CpuDevice: copies and sums are ordered on their stream",
          "[cpu_device]") {
  CpuDevice device;
  const TestStream a(&device);
  // 1 + 1/256 + 1/256: in bfloat16 each addend alone rounds away.
  BFloat16 one, step, sum;
  a.Do([&] {
    one = BFloat16(1.0F);
    step = BFloat16(0x1p-8F);
  });
  BFloat16 other;
  REQUIRE(device.Copy(&other, &step, sizeof(step), a.get()).ok());
  const void* const addends[] = {&one, &step, &other};
  REQUIRE(device.Sum(&sum, addends, 1, DType::kBFloat16, a.get()).ok());
  REQUIRE(device.Synchronize(a.get()).ok());
  CHECK(static_cast<float>(sum) == 1.0F + 0x1p-7F);
  CHECK(device.Sum(&sum, {}, 1, DType::kBFloat16, a.get()).code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("CpuDevice: exceptions of tasks become its failure", "[cpu_device]") {
  CpuDevice device;
  const TestStream a(&device);
  SECTION("memory") {
    a.Do([] { throw std::bad_alloc(); });
    CHECK(device.Synchronize(a.get()).code() == StatusCode::kOutOfMemory);
  }
  SECTION("others") {
    a.Do([] { throw std::runtime_error("broken"); });
    CHECK(device.Synchronize(a.get()) ==
          Status(StatusCode::kInternal, "broken"));
  }
}

TEST_CASE("CpuDevice: buffers", "[cpu_device]") {
  CpuDevice device({.poison_buffers = true});
  const Result<Buffer> buffer = device.Allocate(64);
  REQUIRE(buffer.ok());
  CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 256 == 0);
  CHECK(std::isnan(static_cast<double*>(buffer->data())[7]));
  CHECK(device.Allocate(0).ok());
  CHECK(device.Allocate(-1).status().code() == StatusCode::kInvalidArgument);
  CHECK(device.Allocate(int64_t{1} << 60).status().code() ==
        StatusCode::kOutOfMemory);
  CHECK(EnqueueOnHost({}, [](const Status&) { return Status(); }).code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("WorkerPool: runs each iteration once", "[worker_pool]") {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    // Loops of several callers at the same time.
    std::atomic<int> wrong = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          std::vector<std::atomic<int>> seen(37);
          pool.Run(37, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
          for (const auto& count : seen) {
            if (count != 1) ++wrong;
          }
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("WorkerPool: throws what an iteration throws", "[worker_pool]") {
  for (const int threads : {1, 3}) {
    WorkerPool pool(threads);
    CHECK_THROWS_AS(pool.Run(10,
                             [](int64_t i) {
                               if (i == 4) throw std::runtime_error("4");
                             }),
                    std::runtime_error);
    int64_t sum = 0;  // and works on
    std::mutex mutex;
    pool.Run(10, [&](int64_t i) {
      const std::lock_guard lock(mutex);
      sum += i;
    });
    CHECK(sum == 45);
  }
}

}  // namespace skrull::exec::testing
