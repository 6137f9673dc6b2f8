// A host device that runs what is ready in a random order: a search for
// missing dependencies between streams.
#ifndef SKRULL_TESTS_CUDA_RANDOM_ORDER_DEVICE_H_
#define SKRULL_TESTS_CUDA_RANDOM_ORDER_DEVICE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/host_device.h"

namespace skrull::exec::testing {

// Nothing runs before the host waits or asks; then all that may run does, on
// the caller's thread, one task at a time, each time of a stream drawn at
// random among those whose next task may run. Thread-safe; the order follows
// from the seed where one thread uses it.
class RandomOrderDevice final : public HostDevice {
 public:
  // `dropped_wait`: that call of Wait, from 0, has no effect, a planted fault;
  // -1 for none.
  explicit RandomOrderDevice(uint64_t seed, int dropped_wait = -1)
      : HostDevice({.poison_buffers = true}),
        dropped_wait_(dropped_wait),
        random_(seed) {}

  std::string_view name() const override { return "random order"; }
  Result<Stream> CreateStream(StreamPriority priority) override;
  void DestroyStream(Stream stream) noexcept override;
  Result<Event> CreateEvent() override;
  void DestroyEvent(Event event) noexcept override;
  Status Record(Event event, Stream stream) override;
  Status Wait(Stream stream, Event event) override;
  Result<bool> Query(Event event) override;
  Status HostWait(Event event) override;
  Status Synchronize(Stream stream) override;

  // Keeps the number of calls of Wait there, too; it outlives the device.
  void CountWaitsIn(int* count) {
    *count = 0;
    wait_count_ = count;
  }

 private:
  struct EventState {
    int64_t issued = 0;
    int64_t completed = 0;
  };
  struct Task {
    HostTask run;
    std::shared_ptr<EventState> after;  // null: ready
    int64_t record = 0;
  };
  class Queue;

  // Runs what may run. Called with mutex_ held.
  void RunAll();
  // Runs what may run until `is_done`, which is called with mutex_ held.
  template <class IsDone>
  void RunUntil(const IsDone& is_done);

  const int dropped_wait_;
  std::mutex mutex_;
  // The state below is protected by mutex_.
  std::mt19937_64 random_;
  int own_wait_count_ = 0;
  int* wait_count_ = &own_wait_count_;
  std::vector<Queue*> queues_;
  std::vector<std::shared_ptr<EventState>> events_;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_RANDOM_ORDER_DEVICE_H_
