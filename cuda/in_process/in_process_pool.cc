#include "skrull/cuda/in_process/in_process_pool.h"

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "skrull/cuda/cpu/host_device.h"
#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/cpu/rank_sum.h"
#include "skrull/cuda/host_queue.h"

namespace skrull::exec {
// One rank's end of a block.
class InProcessPool::BlockCommunicator final : public Communicator {
 public:
  BlockCommunicator(internal::RankMeetings* meetings, bool poison_buffers,
                    Block block, int32_t rank)
      : meetings_(meetings),
        meeting_(meetings->Of(block)),
        poison_buffers_(poison_buffers),
        block_(block),
        rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return block_.degree; }

  Result<Buffer> Allocate(int64_t bytes) override {
    Result<Buffer> buffer = AllocateHostMemory(bytes);
    if (buffer.ok() && poison_buffers_) {
      std::memset(buffer->data(), 0xFF, static_cast<size_t>(bytes));
    }
    return buffer;
  }

  Status AllGather(const void* send, void* recv, int64_t bytes,
                   Stream stream) override {
    return Exchange("an all-gather of " + std::to_string(bytes) + " bytes",
                    send, stream, [=](const std::vector<const void*>& sends) {
                      char* to = static_cast<char*>(recv);
                      for (const void* from : sends) {
                        std::memcpy(to, from, static_cast<size_t>(bytes));
                        to += bytes;
                      }
                    });
  }

  Status ReduceScatter(const void* send, void* recv, int64_t count, DType dtype,
                       Stream stream) override {
    return Exchange("a reduce-scatter of " + std::to_string(count) + " " +
                        std::string(DTypeName(dtype)),
                    send, stream,
                    [=, this](const std::vector<const void*>& sends) {
                      WithHostType(dtype, [&]<class T>(T) {
                        SumRanks<T>(sends, rank_ * count, count, recv);
                      });
                    });
  }

  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return Exchange("a shift of " + std::to_string(bytes) + " bytes", send,
                    stream, [=, this](const std::vector<const void*>& sends) {
                      const int32_t from =
                          (rank_ - 1 + block_.degree) % block_.degree;
                      std::memcpy(recv, sends[static_cast<size_t>(from)],
                                  static_cast<size_t>(bytes));
                    });
  }

  Status Poll() override { return meetings_->Poll(); }

  void Abort(const Status& cause) noexcept override {
    meetings_->AbortBy(block_.first_rank + rank_, cause);
  }

 private:
  using Move = std::function<void(const std::vector<const void*>& sends)>;

  // Enqueues: meet, check that all came for the same, move, part.
  Status Exchange(std::string what, const void* send, Stream stream,
                  Move move) {
    SKRULL_EXEC_RETURN_IF_ERROR(Poll());
    return EnqueueOnHost(
        stream,
        [this,
         contribution = Contribution{.what = std::move(what), .send = send},
         move = std::move(move)](const Status& device) -> Status {
          if (!device.ok()) {
            Abort(device);
            return {};
          }
          Visit visit(meeting_, rank_);
          SKRULL_EXEC_RETURN_IF_ERROR(
              meetings_->EnterCollective(&visit, block_, contribution));
          std::vector<const void*> sends;
          for (int32_t r = 0; r < block_.degree; ++r) {
            sends.push_back(visit.Of(r).send);
          }
          move(sends);
          return visit.Leave();
        });
  }

  internal::RankMeetings* const meetings_;
  Meeting* const meeting_;
  const bool poison_buffers_;
  const Block block_;
  const int32_t rank_;
};

InProcessPool::InProcessPool(int32_t ranks, const InProcessOptions& options)
    : meetings_(ranks, options.time_limit) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(std::make_unique<internal::RankSet>(
        &meetings_, rank,
        [this, poison = options.poison_buffers](Block block, int32_t in_block)
            -> Result<std::unique_ptr<Communicator>> {
          return std::unique_ptr<Communicator>(
              std::make_unique<BlockCommunicator>(&meetings_, poison, block,
                                                  in_block));
        }));
  }
}

InProcessPool::~InProcessPool() = default;

CommunicatorSet* InProcessPool::communicators(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

StepAgreement* InProcessPool::agreement(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

}  // namespace skrull::exec
