#include "skrull/tests/bench/load/stream_client.h"

#include <utility>

#include "skrull/tests/bench/load/recorder.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::load {

StreamClient::StreamClient(Stub* stub) {
  stub->PrepareBidiStreamingCall(&context_,
                                 "/skrull.v1.PlannerService/StreamPlans",
                                 grpc::StubOptions(), this);
  AddHold();  // until OnReadDone says that the stream has ended
  StartRead(&response_);
  StartCall();
}

StreamClient::~StreamClient() {
  context_.TryCancel();
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
}

void StreamClient::Send(grpc::ByteBuffer request, Done done) {
  std::string broken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    broken = broken_;
    if (broken.empty()) {
      unanswered_.push_back(std::move(done));
      to_send_.push_back(std::move(request));
      if (writing_) return;
      writing_ = true;
      StartWrite(&to_send_.front());
      return;
    }
  }
  done(broken);
}

void StreamClient::OnWriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  to_send_.pop_front();
  writing_ = ok && !to_send_.empty();
  if (writing_) StartWrite(&to_send_.front());
}

void StreamClient::OnReadDone(bool ok) {
  if (!ok) {
    {
      // No write may start once the hold is gone.
      std::lock_guard<std::mutex> lock(mutex_);
      broken_ = "stream ended";
    }
    RemoveHold();
    return;
  }
  v1::StreamPlansResponse response;
  const bool parsed =
      grpc::SerializationTraits<v1::StreamPlansResponse>::Deserialize(
          &response_, &response)
          .ok();
  Done done;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!unanswered_.empty()) {
      done = std::move(unanswered_.front());
      unanswered_.pop_front();
    }
  }
  StartRead(&response_);
  if (!done) return;
  if (!parsed) {
    done("not a StreamPlansResponse");
  } else {
    done(response.has_status() ? ReasonOf(response.status()) : "");
  }
}

void StreamClient::OnDone(const grpc::Status& status) {
  std::deque<Done> left;
  std::string reason;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = status.ok() ? "stream ended" : ReasonOf(status);
    reason = broken_;
    left.swap(unanswered_);
  }
  for (const Done& done : left) done(reason);
  std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  ended_.notify_all();
}

}  // namespace skrull::load
