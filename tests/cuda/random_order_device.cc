#include "skrull/tests/cuda/random_order_device.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace skrull::exec::testing {

class RandomOrderDevice::Queue final : public HostQueue {
 public:
  Status Enqueue(HostTask task) override {
    tasks.push_back({.run = std::move(task), .after = nullptr, .record = 0});
    return {};
  }
  bool IsReady() const {
    return !tasks.empty() &&
           (tasks.front().after == nullptr ||
            tasks.front().after->completed >= tasks.front().record);
  }

  std::deque<Task> tasks;
};

namespace {

template <class T>
T* HandleOf(Event event) {
  return static_cast<T*>(event.handle);
}

}  // namespace

Result<Stream> RandomOrderDevice::CreateStream(StreamPriority) {
  auto* queue = new Queue;
  queues_.push_back(queue);
  return Stream{static_cast<HostQueue*>(queue)};
}

void RandomOrderDevice::DestroyStream(Stream stream) noexcept {
  RunAll();
  auto* queue = static_cast<Queue*>(static_cast<HostQueue*>(stream.handle));
  std::erase(queues_, queue);
  delete queue;
}

Result<Event> RandomOrderDevice::CreateEvent() {
  events_.push_back(std::make_shared<EventState>());
  return Event{events_.back().get()};
}

void RandomOrderDevice::DestroyEvent(Event) noexcept {}

Status RandomOrderDevice::Record(Event event, Stream stream) {
  auto* state = HandleOf<EventState>(event);
  const int64_t number = ++state->issued;
  return EnqueueOnHost(stream, [state, number](const Status&) {
    state->completed = std::max(state->completed, number);
    return Status();
  });
}

Status RandomOrderDevice::Wait(Stream stream, Event event) {
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

Result<bool> RandomOrderDevice::Query(Event) {
  RunAll();
  return true;
}

Status RandomOrderDevice::HostWait(Event) {
  RunAll();
  return Poll();
}

Status RandomOrderDevice::Synchronize(Stream) {
  RunAll();
  return Poll();
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
