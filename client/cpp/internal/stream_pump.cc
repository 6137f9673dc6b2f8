#include "skrull/client/internal/stream_pump.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"

namespace skrull {

using client_internal::Backoff;
using client_internal::RetryDelay;
using client_internal::SteadyTime;

namespace {

SteadyTime Now() { return std::chrono::steady_clock::now(); }

// A stream that ended so is opened again, with everything that was in flight.
bool MayReopen(const absl::Status& status) {
  return status.ok() || absl::IsCancelled(status) || RetryDelay(status);
}

}  // namespace

PlanStream::Impl::Impl(std::shared_ptr<client_internal::Connection> connection,
                       client_internal::CallIdentity identity,
                       v1::PlanBatchRequest common)
    : connection_(std::move(connection)),
      identity_(std::move(identity)),
      common_(std::move(common)),
      reader_([this] { ReadLoop(); }),
      writer_([this] { WriteLoop(); }) {}

PlanStream::Impl::~Impl() {
  {
    Lock lock(mutex_);
    closed_ = true;
    if (context_ != nullptr) context_->TryCancel();
    changed_.notify_all();
  }
  reader_.join();
  writer_.join();
}

absl::Status PlanStream::Impl::Send(int64_t step,
                                    const std::vector<int64_t>& lengths,
                                    int32_t attempt) {
  const auto item = std::make_shared<Item>(connection_->options());
  v1::PlanBatchRequest* batch = item->request.mutable_batch();
  *batch = common_;
  batch->set_step(step);
  batch->set_attempt(attempt);
  batch->mutable_lengths()->Assign(lengths.begin(), lengths.end());

  Lock lock(mutex_);
  const int depth = connection_->options().prefetch_depth;
  if (items_.size() >= static_cast<size_t>(depth)) {
    return client_internal::MakeStatus(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("step ", step, ": ", depth,
                     " batches wait for Next() already (prefetch_depth)"),
        {.reason = "STREAM_FULL", .limit = depth});
  }
  items_.push_back(item);
  unsent_.push_back(item);
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<StreamedPlan> PlanStream::Impl::Next(
    std::optional<std::chrono::milliseconds> timeout) {
  const absl::StatusOr<SteadyTime> deadline = connection_->Deadline(timeout);
  if (!deadline.ok()) return deadline.status();
  const SteadyTime start = Now();
  Lock lock(mutex_);
  while (true) {
    if (items_.empty()) {
      return client_internal::MakeStatus(
          absl::StatusCode::kFailedPrecondition,
          "no batch waits for an answer: Send() one first",
          {.reason = "STREAM_EMPTY"});
    }
    const ItemPtr& front = items_.front();
    if (front->result) {
      StreamedPlan next = {.step = front->request.batch().step(),
                           .attempt = front->request.batch().attempt(),
                           .plan = *std::move(front->result)};
      items_.pop_front();
      changed_.notify_all();
      return next;
    }
    SteadyTime wait_until = *deadline;
    if (unreachable_since_) {
      const SteadyTime give_up = std::max(*unreachable_since_, start) +
                                 connection_->options().unreachable_after;
      if (Now() >= give_up || Now() >= *deadline) return last_error_;
      wait_until = std::min(wait_until, give_up);
    } else if (Now() >= *deadline) {
      if (context_ != nullptr) context_->TryCancel();
      return identity_.Name(absl::DeadlineExceededError(absl::StrCat(
          "StreamPlans at ", connection_->options().address,
          ": no answer to step ", front->request.batch().step(), " in time")));
    }
    changed_.wait_until(lock, wait_until);
  }
}

int PlanStream::Impl::pending() const {
  Lock lock(mutex_);
  return static_cast<int>(items_.size());
}

void PlanStream::Impl::ReadLoop() {
  Backoff backoff(connection_->options());
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !unsent_.empty(); });
    if (closed_) return;
    const absl::Status status = RunStream(lock);
    if (answered_) backoff.Reset();  // the daemon is well
    if (absl::IsUnavailable(status)) {
      last_error_ = status;
      if (!unreachable_since_) unreachable_since_ = Now();
    }
    Recover(status);
    changed_.notify_all();
    WaitToReopen(lock, Now() + std::max(backoff.Next(),
                                        RetryDelay(status).value_or(
                                            std::chrono::milliseconds(0))));
  }
}

void PlanStream::Impl::WaitToReopen(Lock& lock, SteadyTime until) {
  constexpr std::chrono::milliseconds kSlice(50);  // between looks at closed_
  while (!closed_ && Now() < until) {
    if (connection_->IsConnected()) {
      changed_.wait_until(lock, until);
      continue;
    }
    lock.unlock();
    const bool connected =
        connection_->WaitConnected(std::min(until, Now() + kSlice));
    lock.lock();
    if (connected) return;
  }
}

absl::Status PlanStream::Impl::RunStream(Lock& lock) {
  grpc::ClientContext context;
  connection_->AddToken(&context);
  identity_.AddTo(&context);
  context_ = &context;
  answered_ = false;
  lock.unlock();
  const std::unique_ptr<Wire> stream =
      connection_->stub().StreamPlans(&context);
  lock.lock();
  stream_ = stream.get();
  changed_.notify_all();
  lock.unlock();

  bool in_order = true;
  v1::StreamPlansResponse response;
  while (in_order && stream->Read(&response)) {
    lock.lock();
    in_order = Accept(response);
    lock.unlock();
  }
  if (!in_order) context.TryCancel();

  // The writer may be inside Write(), which fails now that the stream is dead.
  lock.lock();
  stream_ = nullptr;
  changed_.wait(lock, [&] { return !writing_; });
  lock.unlock();
  const grpc::Status end = stream->Finish();
  lock.lock();
  context_ = nullptr;
  if (!in_order) return absl::InternalError("the daemon answered out of order");
  return identity_.Name(client_internal::StatusFromGrpc(
      end, absl::StrCat("StreamPlans at ", connection_->options().address)));
}

bool PlanStream::Impl::Accept(const v1::StreamPlansResponse& response) {
  if (in_flight_.empty()) return false;
  const ItemPtr item = in_flight_.front();
  if (response.step() != item->request.batch().step() ||
      response.attempt() != item->request.batch().attempt()) {
    return false;
  }
  in_flight_.pop_front();
  answered_ = true;
  if (response.has_response()) {
    Resolve(item, client_internal::PlanFromWire(response.response()));
    return true;
  }
  const absl::Status refusal =
      identity_.Name(client_internal::StatusFromWire(response.status()));
  if (refusal.ok()) {
    Resolve(item, absl::InternalError("the daemon's answer holds no plan"));
  } else if (const auto delay = RetryDelay(refusal)) {
    item->not_before = Now() + std::max(*delay, item->backoff.Next());
    unsent_.push_back(item);
    changed_.notify_all();
  } else {
    Resolve(item, refusal);
  }
  return true;
}

void PlanStream::Impl::Recover(const absl::Status& status) {
  const size_t sent = in_flight_.size();
  unsent_.insert(unsent_.begin(), in_flight_.begin(), in_flight_.end());
  in_flight_.clear();
  if (MayReopen(status) || unsent_.empty()) return;
  if (sent > 1) {
    suspects_ = sent;
    return;
  }
  const ItemPtr culprit = unsent_.front();
  unsent_.pop_front();
  Resolve(culprit, status);
}

void PlanStream::Impl::Resolve(const ItemPtr& item,
                               absl::StatusOr<PlanResult> result) {
  item->result = std::move(result);
  if (suspects_ > 0) --suspects_;
  changed_.notify_all();
}

PlanStream::Impl::ItemPtr PlanStream::Impl::TakeWritable(
    std::optional<SteadyTime>* wait_until) {
  if (stream_ == nullptr) return nullptr;
  if (suspects_ > 0 && !in_flight_.empty()) return nullptr;
  const SteadyTime now = Now();
  for (auto it = unsent_.begin(); it != unsent_.end(); ++it) {
    if ((*it)->not_before <= now) {
      ItemPtr item = *it;
      unsent_.erase(it);
      return item;
    }
    if (!*wait_until || (*it)->not_before < **wait_until) {
      *wait_until = (*it)->not_before;
    }
  }
  return nullptr;
}

void PlanStream::Impl::WriteLoop() {
  Lock lock(mutex_);
  while (!closed_) {
    std::optional<SteadyTime> wait_until;
    const ItemPtr item = TakeWritable(&wait_until);
    if (item == nullptr) {
      if (wait_until) {
        changed_.wait_until(lock, *wait_until);
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    in_flight_.push_back(item);
    writing_ = true;
    Wire* const stream = stream_;
    lock.unlock();
    // A failure shows in the reader, too, which then puts the batch back.
    const bool reached = stream->Write(item->request);
    lock.lock();
    writing_ = false;
    if (reached) unreachable_since_.reset();
    changed_.notify_all();
  }
}

PlanStream::PlanStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PlanStream::~PlanStream() {
  // In a forked child neither its threads nor gRPC's exist.
  if (!impl_->connection().CheckProcess().ok()) (void)impl_.release();
}

absl::Status PlanStream::Send(int64_t step, const std::vector<int64_t>& lengths,
                              int32_t attempt) {
  absl::Status process = impl_->connection().CheckProcess();
  if (!process.ok()) return process;
  return impl_->Send(step, lengths, attempt);
}

absl::StatusOr<StreamedPlan> PlanStream::Next(
    std::optional<std::chrono::milliseconds> timeout) {
  absl::Status process = impl_->connection().CheckProcess();
  if (!process.ok()) return process;
  return impl_->Next(timeout);
}

int PlanStream::pending() const {
  return impl_->connection().CheckProcess().ok() ? impl_->pending() : 0;
}

}  // namespace skrull
