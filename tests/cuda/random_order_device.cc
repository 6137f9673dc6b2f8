#include "skrull/tests/cuda/random_order_device.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

namespace skrull::exec::testing {

class RandomOrderDevice::Queue final : public HostQueue {
 public:
  explicit Queue(std::mutex* mutex) : mutex_(mutex) {}

  Status Enqueue(HostTask task) override {
    const std::lock_guard lock(*mutex_);
    tasks.push_back({.run = std::move(task), .after = nullptr, .record = 0});
    return {};
  }
  bool IsReady() const {
    return !tasks.empty() &&
           (tasks.front().after == nullptr ||
            tasks.front().after->completed >= tasks.front().record);
  }

  std::deque<Task> tasks;

 private:
  std::mutex* const mutex_;  // the device's
};

namespace {

template <class T>
T* HandleOf(Event event) {
  return static_cast<T*>(event.handle);
}

}  // namespace

Result<Stream> RandomOrderDevice::CreateStream(StreamPriority) {
  const std::lock_guard lock(mutex_);
  auto* queue = new Queue(&mutex_);
  queues_.push_back(queue);
  return Stream{static_cast<HostQueue*>(queue)};
}

void RandomOrderDevice::DestroyStream(Stream stream) noexcept {
  auto* queue = static_cast<Queue*>(static_cast<HostQueue*>(stream.handle));
  RunUntil([&] { return queue->tasks.empty(); });
  const std::lock_guard lock(mutex_);
  std::erase(queues_, queue);
  delete queue;
}

Result<Event> RandomOrderDevice::CreateEvent() {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::make_shared<EventState>());
  return Event{events_.back().get()};
}

void RandomOrderDevice::DestroyEvent(Event) noexcept {}

Status RandomOrderDevice::Record(Event event, Stream stream) {
  auto* state = HandleOf<EventState>(event);
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++state->issued;
  }
  // Runs with mutex_ held.
  return EnqueueOnHost(stream, [state, number](const Status&) {
    state->completed = std::max(state->completed, number);
    return Status();
  });
}

Status RandomOrderDevice::Wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex_);
  const int number = (*wait_count_)++;
  if (number == dropped_wait_) return {};
  const auto found = std::ranges::find_if(
      events_, [&](const auto& state) { return state.get() == event.handle; });
  auto* queue = static_cast<Queue*>(static_cast<HostQueue*>(stream.handle));
  queue->tasks.push_back({.run = [](const Status&) { return Status(); },
                          .after = *found,
                          .record = (*found)->issued});
  return {};
}

Result<bool> RandomOrderDevice::Query(Event event) {
  const auto* state = HandleOf<EventState>(event);
  const std::lock_guard lock(mutex_);
  RunAll();
  return state->completed >= state->issued;
}

Status RandomOrderDevice::HostWait(Event event) {
  const auto* state = HandleOf<EventState>(event);
  RunUntil([&] { return state->completed >= state->issued; });
  return Poll();
}

Status RandomOrderDevice::Synchronize(Stream stream) {
  auto* queue = static_cast<Queue*>(static_cast<HostQueue*>(stream.handle));
  RunUntil([&] { return queue->tasks.empty(); });
  return Poll();
}

// What is left may wait for what another thread has yet to enqueue.
template <class IsDone>
void RandomOrderDevice::RunUntil(const IsDone& is_done) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      RunAll();
      if (is_done()) return;
    }
    std::this_thread::yield();
  }
}

void RandomOrderDevice::RunAll() {
  while (true) {
    std::vector<Queue*> ready;
    for (Queue* queue : queues_) {
      if (queue->IsReady()) ready.push_back(queue);
    }
    if (ready.empty()) return;
    // Runs of one stream, too, so that one falls far behind the other.
    Queue* queue = ready[random_() % ready.size()];
    for (uint64_t n = random_() % 4; queue->IsReady(); --n) {
      const HostTask run = std::move(queue->tasks.front().run);
      queue->tasks.pop_front();
      RunTask(run);
      if (n == 0) break;
    }
  }
}

}  // namespace skrull::exec::testing
