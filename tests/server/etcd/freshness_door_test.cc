#include "skrull/server/etcd/freshness_door.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/server/mutex.h"

namespace skrull {
namespace {

// A check that is held until the test lets it go.
class Gate {
 public:
  absl::Status Check() {
    MutexLock lock(&mutex_);
    const int number = ++begun_;
    changed_.SignalAll();
    while (let_ < number) changed_.Wait(&mutex_);
    return result_;
  }
  // Lets the first `checks` go.
  void Let(int checks) {
    MutexLock lock(&mutex_);
    let_ = checks;
    changed_.SignalAll();
  }
  void SetResult(const absl::Status& result) {
    MutexLock lock(&mutex_);
    result_ = result;
  }
  void WaitBegun(int checks) {
    MutexLock lock(&mutex_);
    while (begun_ < checks) changed_.Wait(&mutex_);
  }
  int begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int begun_ SKRULL_GUARDED_BY(mutex_) = 0;
  int let_ SKRULL_GUARDED_BY(mutex_) = 0;
  absl::Status result_ SKRULL_GUARDED_BY(mutex_);
};

std::future<absl::Status> Enter(FreshnessDoor* door) {
  auto promise = std::make_shared<std::promise<absl::Status>>();
  door->Enter(
      [promise](const absl::Status& status) { promise->set_value(status); });
  return promise->get_future();
}

TEST_CASE("FreshnessDoor: callers that wait share the next check",
          "[server][etcd]") {
  Gate gate;
  FreshnessDoor door([&] { return gate.Check(); });
  // One check on each thread.
  auto first = Enter(&door);
  gate.WaitBegun(1);
  auto second = Enter(&door);
  gate.WaitBegun(2);
  // None of these may be answered by a check that began before it came.
  std::vector<std::future<absl::Status>> late;
  for (int i = 0; i < 100; ++i) late.push_back(Enter(&door));
  gate.Let(2);
  CHECK(first.get().ok());
  CHECK(second.get().ok());
  gate.WaitBegun(3);
  gate.SetResult(absl::UnavailableError("cut off"));
  gate.Let(3);
  for (auto& caller : late) {
    CHECK(caller.get() == absl::UnavailableError("cut off"));
  }
  CHECK(gate.begun() == 3);
}

TEST_CASE("FreshnessDoor: whoever waits at its end is told", "[server][etcd]") {
  Gate gate;
  auto door = std::make_unique<FreshnessDoor>([&] { return gate.Check(); });
  auto first = Enter(door.get());
  gate.WaitBegun(1);
  auto second = Enter(door.get());
  gate.WaitBegun(2);
  auto third = Enter(door.get());
  std::thread end([&] { door.reset(); });
  const absl::Status status = third.get();
  CHECK(GetErrorDetail(status)->reason == ErrorReason::kDraining);
  gate.Let(2);
  CHECK(first.get().ok());
  CHECK(second.get().ok());
  end.join();
}

}  // namespace
}  // namespace skrull
