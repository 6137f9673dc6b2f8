#include "skrull/cuda/call_guard.h"

#include <algorithm>
#include <thread>

namespace skrull::exec::internal {

Status CallGuard::Start() {
  Result<Event> done = device_->CreateEvent();
  SKRULL_EXEC_RETURN_IF_ERROR(done.status());
  fence_ = std::make_shared<Fence>(device_, *done);
  return {};
}

Status CallGuard::Poll() {
  SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
  Status status = communicators_->Poll();
  if (status.ok()) status = device_->Poll();
  Fail(status);
  return failure_.Get();
}

Status CallGuard::Wait(std::chrono::nanoseconds timeout) {
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  while (true) {
    (void)Poll();
    const Result<bool> done = device_->Query(fence_->done());
    // After a failure too, work that runs on uses the caller's tensors.
    if (done.ok() && *done) return Poll();
    if (!done.ok()) Fail(done.status());
    const std::chrono::nanoseconds waited = steady_clock::now() - begin;
    if (waited >= timeout) {
      Fail({StatusCode::kDeadlineExceeded,
            "the work of the executor's calls did not end in time"});
      return failure_.Get();
    }
    // Late by a part of the wait, so that asking costs next to nothing.
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(
        waited / 64, std::chrono::microseconds(10),
        std::chrono::milliseconds(5)));
  }
}

void CallGuard::Fail(const Status& cause) noexcept {
  if (cause.ok()) return;
  // A device that failed makes its communicators fail: then it is the cause.
  const Status own = device_->Poll();
  const Status& first = own.ok() ? cause : own;
  if (failure_.Set(first)) communicators_->Abort(first);
}

}  // namespace skrull::exec::internal
