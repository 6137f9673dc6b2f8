#include "skrull/cuda/in_process/device_pool.h"

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

namespace skrull::exec {

// One rank's end of a block. The lowest rank of a block enqueues each
// collective for all, while the others' calls wait for it.
class DevicePool::BlockCommunicator final : public Communicator {
 public:
  // Before anything else, Open.
  BlockCommunicator(internal::RankMeetings* meetings, Device* device,
                    Block block, int32_t rank)
      : meetings_(meetings),
        meeting_(meetings->Of(block)),
        device_(device),
        block_(block),
        rank_(rank) {}

  ~BlockCommunicator() override {
    for (const Event event : events_) device_->DestroyEvent(event);
  }

  // Makes the events: those of the device's errors.
  Status Open() {
    if (rank_ != 0) return {};
    for (int32_t r = 0; r < block_.degree; ++r) {
      Result<Event> event = device_->CreateEvent();
      SKRULL_EXEC_RETURN_IF_ERROR(event.status());
      events_.push_back(*event);
    }
    return {};
  }

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return block_.degree; }

  Result<Buffer> Allocate(int64_t bytes) override {
    return device_->Allocate(bytes);
  }

  Status AllGather(const void* send, void* recv, int64_t bytes,
                   Stream stream) override {
    return Exchange(
        {.what = "an all-gather of " + std::to_string(bytes) + " bytes",
         .send = send,
         .recv = recv,
         .stream = stream},
        [&](const Visit& visit, int32_t to) -> Status {
          char* at = static_cast<char*>(visit.Of(to).recv);
          for (int32_t from = 0; from < size(); ++from) {
            SKRULL_EXEC_RETURN_IF_ERROR(
                device_->Copy(at + from * bytes, visit.Of(from).send, bytes,
                              visit.Of(to).stream));
          }
          return {};
        });
  }

  Status ReduceScatter(const void* send, void* recv, int64_t count, DType dtype,
                       Stream stream) override {
    return Exchange(
        {.what = "a reduce-scatter of " + std::to_string(count) + " " +
                 std::string(DTypeName(dtype)),
         .send = send,
         .recv = recv,
         .stream = stream},
        [&](const Visit& visit, int32_t to) {
          const int64_t offset = to * count * SizeOf(dtype);
          std::vector<const void*> parts;
          for (int32_t from = 0; from < size(); ++from) {
            parts.push_back(static_cast<const char*>(visit.Of(from).send) +
                            offset);
          }
          return device_->Sum(visit.Of(to).recv, parts, count, dtype,
                              visit.Of(to).stream);
        });
  }

  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return Exchange({.what = "a shift of " + std::to_string(bytes) + " bytes",
                     .send = send,
                     .recv = recv,
                     .stream = stream},
                    [&](const Visit& visit, int32_t to) {
                      const int32_t from = (to - 1 + size()) % size();
                      return device_->Copy(visit.Of(to).recv,
                                           visit.Of(from).send, bytes,
                                           visit.Of(to).stream);
                    });
  }

  Status Poll() override { return meetings_->Poll(); }

  void Abort(const Status& cause) noexcept override {
    meetings_->AbortBy(block_.first_rank + rank_, cause);
  }

 private:
  // Enqueues what rank `to` of the block receives, on its stream.
  using Move = std::function<Status(const Visit& visit, int32_t to)>;

  Status Exchange(Contribution contribution, const Move& move) {
    Visit visit(meeting_, rank_);
    SKRULL_EXEC_RETURN_IF_ERROR(
        meetings_->EnterCollective(&visit, block_, std::move(contribution)));
    if (rank_ == 0) {
      const Status enqueued = EnqueueForAll(visit, move);
      if (!enqueued.ok()) meetings_->Fail(enqueued);
    }
    return visit.Leave();
  }

  Status EnqueueForAll(const Visit& visit, const Move& move) {
    SKRULL_EXEC_RETURN_IF_ERROR(JoinStreams(visit));  // all have come
    Status moved;
    for (int32_t to = 0; to < size() && moved.ok(); ++to) {
      moved = move(visit, to);
    }
    // All have read what others sent: also where only some could be enqueued,
    // for a rank that fails frees its memory when its own stream has run empty.
    const Status joined = JoinStreams(visit);
    return moved.ok() ? joined : moved;
  }

  // What is enqueued on any rank's stream from now on follows what is on all of
  // them now.
  Status JoinStreams(const Visit& visit) {
    for (int32_t r = 0; r < size(); ++r) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          device_->Record(EventOf(r), visit.Of(r).stream));
    }
    for (int32_t r = 0; r < size(); ++r) {
      for (int32_t other = 0; other < size(); ++other) {
        if (other == r) continue;
        SKRULL_EXEC_RETURN_IF_ERROR(
            device_->Wait(visit.Of(r).stream, EventOf(other)));
      }
    }
    return {};
  }

  Event EventOf(int32_t rank) const {
    return events_[static_cast<size_t>(rank)];
  }

  internal::RankMeetings* const meetings_;
  Meeting* const meeting_;
  Device* const device_;
  const Block block_;
  const int32_t rank_;
  std::vector<Event> events_;  // [rank of the block]; of its lowest rank alone
};

DevicePool::DevicePool(int32_t ranks, Device* device,
                       const DevicePoolOptions& options)
    : meetings_(ranks, options.time_limit) {
  const auto create =
      [this, device](Block block,
                     int32_t rank) -> Result<std::unique_ptr<Communicator>> {
    if (block.degree > kMaxAddends) {
      return Status(StatusCode::kUnsupported,
                    "a block of " + std::to_string(block.degree) +
                        " ranks on one device, which adds " +
                        std::to_string(kMaxAddends));
    }
    auto made =
        std::make_unique<BlockCommunicator>(&meetings_, device, block, rank);
    SKRULL_EXEC_RETURN_IF_ERROR(made->Open());
    return std::unique_ptr<Communicator>(std::move(made));
  };
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(
        std::make_unique<internal::RankSet>(&meetings_, rank, create));
  }
}

DevicePool::~DevicePool() = default;

CommunicatorSet* DevicePool::communicators(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

StepAgreement* DevicePool::agreement(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

}  // namespace skrull::exec
