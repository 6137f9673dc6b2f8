#include "skrull/cuda/cpu/cpu_device.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace skrull::exec {
namespace {

// Records are numbered; record n is complete when `completed` >= n.
class Ticket {
 public:
  int64_t Issue() {
    const std::lock_guard lock(mutex_);
    return ++issued_;
  }
  int64_t issued() {
    const std::lock_guard lock(mutex_);
    return issued_;
  }
  void Complete(int64_t number) {
    const std::lock_guard lock(mutex_);
    completed_ = std::max(completed_, number);
    condition_.notify_all();
  }
  bool IsComplete(int64_t number) {
    const std::lock_guard lock(mutex_);
    return completed_ >= number;
  }
  // What is waited for was enqueued before, and queues always run on, so this
  // ends.
  void Await(int64_t number) {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [&] { return completed_ >= number; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  int64_t issued_ = 0;     // protected by mutex_
  int64_t completed_ = 0;  // protected by mutex_
};

using SharedTicket = std::shared_ptr<Ticket>;

SharedTicket& TicketOf(Event event) {
  return *static_cast<SharedTicket*>(event.handle);
}

}  // namespace

class CpuDevice::ThreadQueue final : public HostQueue {
 public:
  explicit ThreadQueue(CpuDevice* device)
      : device_(device), thread_([this] { Run(); }) {}

  // Runs what is queued, then ends.
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    condition_.notify_one();
    thread_.join();
  }

  Status Enqueue(HostTask task) override {
    try {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    } catch (const std::bad_alloc&) {
      return {StatusCode::kOutOfMemory, "no memory to enqueue a task"};
    }
    condition_.notify_one();
    return {};
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      condition_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      HostTask task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      device_->RunTask(task);
      task = nullptr;  // before the next wait: it may own memory
      lock.lock();
    }
  }

  CpuDevice* const device_;
  std::mutex mutex_;
  std::condition_variable condition_;
  std::deque<HostTask> tasks_;  // protected by mutex_
  bool closed_ = false;         // protected by mutex_
  std::thread thread_;          // last: starts when the rest is there
};

Result<Stream> CpuDevice::CreateStream(StreamPriority) {
  try {
    // The base, since that is what the handle is cast to.
    HostQueue* queue = new ThreadQueue(this);
    return Stream{queue};
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for a stream");
  } catch (const std::system_error& e) {
    return Status(StatusCode::kOutOfMemory,
                  std::string("no thread for a stream: ") + e.what());
  }
}

void CpuDevice::DestroyStream(Stream stream) noexcept {
  delete static_cast<HostQueue*>(stream.handle);
}

Result<Event> CpuDevice::CreateEvent() {
  try {
    return Event{new SharedTicket(std::make_shared<Ticket>())};
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "no memory for an event");
  }
}

void CpuDevice::DestroyEvent(Event event) noexcept {
  delete static_cast<SharedTicket*>(event.handle);
}

Status CpuDevice::Record(Event event, Stream stream) {
  const SharedTicket& ticket = TicketOf(event);
  const int64_t number = ticket->Issue();
  Status status = EnqueueOnHost(stream, [ticket, number](const Status&) {
    ticket->Complete(number);
    return Status();
  });
  // Nobody may wait for a record that was never made.
  if (!status.ok()) ticket->Complete(number);
  return status;
}

Status CpuDevice::Wait(Stream stream, Event event) {
  const SharedTicket& ticket = TicketOf(event);
  const int64_t number = ticket->issued();
  return EnqueueOnHost(stream, [ticket, number](const Status&) {
    ticket->Await(number);
    return Status();
  });
}

Result<bool> CpuDevice::Query(Event event) {
  const SharedTicket& ticket = TicketOf(event);
  return ticket->IsComplete(ticket->issued());
}

Status CpuDevice::HostWait(Event event) {
  const SharedTicket& ticket = TicketOf(event);
  ticket->Await(ticket->issued());
  return Poll();
}

Status CpuDevice::Synchronize(Stream stream) {
  const auto ticket = std::make_shared<Ticket>();
  SKRULL_EXEC_RETURN_IF_ERROR(EnqueueOnHost(stream, [ticket](const Status&) {
    ticket->Complete(1);
    return Status();
  }));
  ticket->Await(1);
  return Poll();
}

}  // namespace skrull::exec
