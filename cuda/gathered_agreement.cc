#include "skrull/cuda/gathered_agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace skrull::exec {
namespace {

constexpr int64_t kBytes = sizeof(DigestBytes);

// What AllGatherOverPool returns a call of.
class PoolGather {
 public:
  PoolGather(Device* device, CommunicatorSet* communicators,
             std::chrono::nanoseconds time_limit)
      : device_(device),
        communicators_(communicators),
        time_limit_(time_limit) {}

  ~PoolGather() {
    if (stream_.handle != nullptr) device_->DestroyStream(stream_);
    if (done_.handle != nullptr) device_->DestroyEvent(done_);
  }

  Status Start() {
    Result<Event> done = device_->CreateEvent();
    SKRULL_EXEC_RETURN_IF_ERROR(done.status());
    done_ = *done;
    Result<Stream> stream = device_->CreateStream(StreamPriority::kHigh);
    SKRULL_EXEC_RETURN_IF_ERROR(stream.status());
    stream_ = *stream;
    return {};
  }

  Status operator()(const DigestBytes& mine, std::span<DigestBytes> all) {
    if (static_cast<int32_t>(all.size()) != communicators_->size()) {
      return InvalidArgument(
          "an all-gather over " + std::to_string(communicators_->size()) +
          " ranks cannot fill " + std::to_string(all.size()) + " digests");
    }
    if (all.size() == 1) {
      all[0] = mine;
      return {};
    }
    SKRULL_EXEC_RETURN_IF_ERROR(FindPool());
    std::memcpy(buffer_.data(), mine.data(), mine.size());
    char* const received = static_cast<char*>(buffer_.data()) + kBytes;
    SKRULL_EXEC_RETURN_IF_ERROR(
        pool_->AllGather(buffer_.data(), received, kBytes, stream_));
    SKRULL_EXEC_RETURN_IF_ERROR(device_->Record(done_, stream_));
    SKRULL_EXEC_RETURN_IF_ERROR(Await());
    for (size_t r = 0; r < all.size(); ++r) {
      std::memcpy(all[r].data(), received + r * sizeof(DigestBytes),
                  sizeof(DigestBytes));
    }
    return {};
  }

 private:
  Status FindPool() {
    if (pool_ != nullptr) return {};
    const Block whole{.first_rank = 0, .degree = communicators_->size()};
    SKRULL_EXEC_RETURN_IF_ERROR(communicators_->Announce({&whole, 1}));
    const Result<Communicator*> pool = communicators_->Find(whole);
    SKRULL_EXEC_RETURN_IF_ERROR(pool.status());
    Result<Buffer> buffer =
        (*pool)->Allocate(kBytes * (1 + int64_t{whole.degree}));
    SKRULL_EXEC_RETURN_IF_ERROR(buffer.status());
    buffer_ = *std::move(buffer);
    pool_ = *pool;
    return {};
  }

  Status Await() {
    const auto deadline = std::chrono::steady_clock::now() + time_limit_;
    std::chrono::nanoseconds pause = std::chrono::microseconds(10);
    while (true) {
      const Result<bool> done = device_->Query(done_);
      Status status = done.status();
      if (status.ok()) status = communicators_->Poll();
      if (status.ok()) status = device_->Poll();
      SKRULL_EXEC_RETURN_IF_ERROR(status);
      if (*done) return {};
      if (std::chrono::steady_clock::now() >= deadline) {
        status = {StatusCode::kDeadlineExceeded,
                  "not all ranks came to compare their plans"};
        communicators_->Abort(status);
        return status;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::nanoseconds>(2 * pause,
                                                 std::chrono::milliseconds(1));
    }
  }

  Device* const device_;
  CommunicatorSet* const communicators_;
  const std::chrono::nanoseconds time_limit_;
  Event done_;
  Stream stream_;
  Communicator* pool_ = nullptr;
  Buffer buffer_;  // this rank's digest, then all ranks'
};

}  // namespace

Status CompareDigests(std::span<const DigestBytes> all) {
  constexpr int kMaxListed = 32;
  const DigestBytes& common = all[MostCommon(all)];
  int64_t others = 0;
  std::string ranks;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == common) continue;
    if (++others > kMaxListed) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    if (all[r] == kNoDigest) ranks += " (no plan)";
  }
  if (others == 0) return {};
  if (others > kMaxListed) ranks += ", ...";
  return {StatusCode::kFailedPrecondition,
          "ranks hold different plans: " + std::to_string(others) + " of " +
              std::to_string(all.size()) + " differ from the most common one" +
              (common == kNoDigest ? ", which is to have none" : "") +
              ", at rank " + ranks};
}

Status GatheredAgreement::Agree(std::string_view digest) {
  const DigestBytes mine = ParseDigest(digest).value_or(kNoDigest);
  std::vector<DigestBytes> all(static_cast<size_t>(ranks_));
  SKRULL_EXEC_RETURN_IF_ERROR(all_gather_(mine, all));
  SKRULL_EXEC_RETURN_IF_ERROR(CompareDigests(all));
  if (mine != kNoDigest) return {};
  return InvalidArgument(digest.empty() ? "no rank has a plan"
                                        : "'" + std::string(digest) +
                                              "' is not the hexadecimal "
                                              "SHA-256 of a plan");
}

Result<DigestAllGather> AllGatherOverPool(Device* device,
                                          CommunicatorSet* communicators,
                                          std::chrono::nanoseconds time_limit) {
  if (device->memory() != MemoryKind::kHost) {
    return InvalidArgument(
        "digests are compared in host memory, which device " +
        std::string(device->name()) + " has not");
  }
  const auto gather =
      std::make_shared<PoolGather>(device, communicators, time_limit);
  SKRULL_EXEC_RETURN_IF_ERROR(gather->Start());
  return DigestAllGather(
      [gather](const DigestBytes& mine, std::span<DigestBytes> all) {
        return (*gather)(mine, all);
      });
}

}  // namespace skrull::exec
