#include "skrull/cuda/host/links.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <system_error>
#include <utility>

namespace skrull::exec {
namespace {

constexpr std::chrono::seconds kCloseLimit{1};

}  // namespace

Links::Links(int32_t rank, std::vector<Fd> connections) : rank_(rank) {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  wake_read_ = Fd(ends[0]);
  wake_write_ = Fd(ends[1]);
  const auto size = static_cast<int32_t>(connections.size());
  for (int32_t peer = 0; peer < size; ++peer) {
    Fd fd = std::move(connections[static_cast<size_t>(peer)]);
    if (peer == rank) fd.Close();
    links_.push_back(std::make_unique<Link>(peer, size, std::move(fd)));
  }
  thread_ = std::thread([this] { Run(); });
}

Links::~Links() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    close_deadline_ = std::chrono::steady_clock::now() + kCloseLimit;
    if (failure_.Get().ok()) {
      for (const auto& link : links_) {
        // To those that left before there is nothing to say.
        (void)link->Enqueue(
            {.label = {.block = {0, 0}, .kind = MessageKind::kGoodbye}});
      }
    }
  }
  Wake();
  thread_.join();
}

Status Links::Exchange(const MessageLabel& label, std::span<const Out> out,
                       std::span<const In> in,
                       std::chrono::nanoseconds time_limit) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + time_limit;
  int64_t open = 0;
  std::unique_lock lock(mutex_);
  SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
  Status started;
  try {
    started = StartLocked(label, out, in, &open);
  } catch (const std::bad_alloc&) {
    started = {StatusCode::kOutOfMemory, "no memory for a message"};
  }
  if (!started.ok()) {
    FailLocked(started);
    return failure_.Get();
  }
  while (open > 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
        open > 0 && failure_.Get().ok()) {
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(time_limit);
      FailLocked({StatusCode::kDeadlineExceeded,
                  "rank " + std::to_string(rank_) + " waited " +
                      std::to_string(waited.count()) + " ms in " +
                      LabelText(label) + " for rank " +
                      MissingLocked(label, out, in)});
    }
  }
  // All is here, so a failure that came later is not this exchange's.
  return {};
}

Status Links::StartLocked(const MessageLabel& label, std::span<const Out> out,
                          std::span<const In> in, int64_t* open) {
  for (const In& i : in) {
    ++*open;
    SKRULL_EXEC_RETURN_IF_ERROR(links_[static_cast<size_t>(i.peer)]->Receive(
        {.label = label, .data = i.data, .text = i.text, .open = open}));
  }
  bool unsent = false;
  for (const Out& o : out) {
    ++*open;
    Link& link = *links_[static_cast<size_t>(o.peer)];
    SKRULL_EXEC_RETURN_IF_ERROR(
        link.Enqueue({.label = label, .data = o.data, .open = open}));
    SKRULL_EXEC_RETURN_IF_ERROR(link.Write());
    unsent = unsent || link.wants_to_write();
  }
  if (unsent) Wake();
  return {};
}

std::string Links::MissingLocked(const MessageLabel& label,
                                 std::span<const Out> out,
                                 std::span<const In> in) const {
  std::string missing;
  const auto add = [&](int32_t peer) {
    missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
  };
  for (const In& i : in) {
    if (links_[static_cast<size_t>(i.peer)]->Awaits(label.block)) add(i.peer);
  }
  if (!missing.empty()) return missing;
  for (const Out& o : out) {
    if (links_[static_cast<size_t>(o.peer)]->wants_to_write()) add(o.peer);
  }
  return missing;
}

void Links::Fail(const Status& status) noexcept {
  const std::lock_guard lock(mutex_);
  FailLocked(status);
}

void Links::FailLocked(const Status& status) noexcept {
  try {
    if (!failure_.Set(status)) return;
  } catch (const std::bad_alloc&) {
    // Short enough to need none.
    if (!failure_.Set({StatusCode::kOutOfMemory, "out of memory"})) return;
  }
  for (const auto& link : links_) link->GiveUp();
  changed_.notify_all();
  try {
    const auto text = std::make_shared<std::string>(status.message());
    text->resize(std::min(text->size(), size_t{kMaxAbortBytes}));
    for (const auto& link : links_) {
      // Those that cannot be reached see the connection end.
      (void)link->Enqueue({.label = {.block = {0, 0},
                                     .kind = MessageKind::kAbort,
                                     .dtype = static_cast<DType>(status.code()),
                                     .bytes = std::ssize(*text)},
                           .data = text->data()},
                          text);
    }
  } catch (const std::bad_alloc&) {
    // So do those that are not told.
    for (const auto& link : links_) link->Close();
  }
  Wake();
}

void Links::ServeLocked(Link* link, short events) {
  Status status;
  if ((events & POLLOUT) != 0) status = link->Write();
  if (status.ok() && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    status = link->Read();
  }
  if (!status.ok()) FailLocked(status);
}

bool Links::HasUnsentLocked() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link->wants_to_write(); });
}

void Links::Wake() noexcept {
  const char byte = 0;
  // A full pipe wakes as well.
  (void)!write(wake_write_.get(), &byte, 1);
}

void Links::Run() {
  std::vector<pollfd> entries;
  std::vector<Link*> polled;
  std::unique_lock lock(mutex_);
  while (true) {
    if (closing_ && (!HasUnsentLocked() ||
                     std::chrono::steady_clock::now() >= close_deadline_)) {
      return;
    }
    entries.assign(1, {.fd = wake_read_.get(), .events = POLLIN, .revents = 0});
    polled.assign(1, nullptr);
    for (const auto& link : links_) {
      if (!link->connected()) continue;
      const int events = POLLIN | (link->wants_to_write() ? POLLOUT : 0);
      entries.push_back({.fd = link->fd(),
                         .events = static_cast<short>(events),
                         .revents = 0});
      polled.push_back(link.get());
    }
    const int timeout = closing_ ? PollMilliseconds(close_deadline_) : -1;
    lock.unlock();
    const int ready = poll(entries.data(), entries.size(), timeout);
    lock.lock();
    if (ready <= 0) continue;
    if (entries[0].revents != 0) {
      char bytes[64];
      while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) continue;
    }
    for (size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].revents == 0 || !polled[i]->connected()) continue;
      try {
        ServeLocked(polled[i], entries[i].revents);
      } catch (const std::bad_alloc&) {
        FailLocked({StatusCode::kOutOfMemory, "out of memory"});
      }
    }
    changed_.notify_all();
  }
}

}  // namespace skrull::exec
