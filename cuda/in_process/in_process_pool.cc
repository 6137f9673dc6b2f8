#include "skrull/cuda/in_process/in_process_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "skrull/cuda/cpu/host_device.h"
#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/cpu/rank_sum.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/rank_votes.h"

namespace skrull::exec {
namespace {

std::string BlockName(Block block) {
  return "[" + std::to_string(block.first_rank) + ", " +
         std::to_string(block.first_rank + block.degree) + ")";
}

}  // namespace

// One rank's end of a block.
class InProcessPool::BlockCommunicator final : public Communicator {
 public:
  BlockCommunicator(InProcessPool* pool, Block block, int32_t rank)
      : pool_(pool),
        meeting_(pool->MeetingOf(block)),
        block_(block),
        rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return block_.degree; }

  Result<Buffer> Allocate(int64_t bytes) override {
    Result<Buffer> buffer = AllocateHostMemory(bytes);
    if (buffer.ok() && pool_->options_.poison_buffers) {
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

  Status Poll() override { return pool_->failure_.Get(); }

  void Abort(const Status& cause) noexcept override {
    pool_->AbortBy(block_.first_rank + rank_, cause);
  }

 private:
  using Move = std::function<void(const std::vector<const void*>& sends)>;

  // Enqueues: meet, check that all came for the same, move, part.
  Status Exchange(std::string what, const void* send, Stream stream,
                  Move move) {
    SKRULL_EXEC_RETURN_IF_ERROR(Poll());
    return EnqueueOnHost(
        stream,
        [this, contribution = Contribution{std::move(what), send},
         move = std::move(move)](const Status& device) -> Status {
          if (!device.ok()) {
            Abort(device);
            return {};
          }
          Visit visit(meeting_, rank_);
          const Status met = pool_->Compare(&visit, block_.first_rank,
                                            block_.degree, contribution);
          if (met.code() == StatusCode::kFailedPrecondition) {
            pool_->Fail({StatusCode::kCommFailed, met.message()});
          }
          if (!met.ok()) return pool_->failure_.Get();
          std::vector<const void*> sends;
          for (int32_t r = 0; r < block_.degree; ++r) {
            sends.push_back(visit.Of(r).send);
          }
          move(sends);
          return visit.Leave();
        });
  }

  InProcessPool* const pool_;
  Meeting* const meeting_;
  const Block block_;
  const int32_t rank_;
};

// What one rank holds.
class InProcessPool::RankSet final : public CommunicatorSet,
                                     public StepAgreement {
 public:
  RankSet(InProcessPool* pool, int32_t rank) : pool_(pool), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return pool_->size_; }

  Status Announce(std::span<const Block> blocks) override {
    std::string what = "blocks";
    for (const Block& block : blocks) {
      if (block.first_rank < 0 || block.degree < 1 ||
          int64_t{block.first_rank} + block.degree > pool_->size_) {
        return InvalidArgument("ranks " + BlockName(block) +
                               " are not all among the pool's " +
                               std::to_string(pool_->size_));
      }
      what += " " + BlockName(block);
    }
    SKRULL_EXEC_RETURN_IF_ERROR(Meet(std::move(what)));
    for (const Block& block : blocks) {
      const int32_t rank = rank_ - block.first_rank;
      if (rank < 0 || rank >= block.degree || communicators_.contains(block)) {
        continue;
      }
      communicators_[block] =
          std::make_unique<BlockCommunicator>(pool_, block, rank);
    }
    return {};
  }

  Result<Communicator*> Find(Block block) override {
    const auto found = communicators_.find(block);
    if (found == communicators_.end()) {
      return Status(StatusCode::kNotFound,
                    "rank " + std::to_string(rank_) +
                        " has no communicator of ranks " + BlockName(block));
    }
    return static_cast<Communicator*>(found->second.get());
  }

  Status Poll() override { return pool_->failure_.Get(); }

  void Abort(const Status& cause) noexcept override {
    pool_->AbortBy(rank_, cause);
  }

  Status Agree(std::string_view digest) override {
    return Meet("plan " + std::string(digest));
  }

 private:
  Status Meet(std::string what) {
    Visit visit(&pool_->control_, rank_);
    SKRULL_EXEC_RETURN_IF_ERROR(
        pool_->Compare(&visit, 0, pool_->size_, {std::move(what), nullptr}));
    return visit.Leave();
  }

  InProcessPool* const pool_;
  const int32_t rank_;
  std::map<Block, std::unique_ptr<BlockCommunicator>> communicators_;
};

InProcessPool::InProcessPool(int32_t ranks, const InProcessOptions& options)
    : size_(ranks),
      options_(options),
      control_(0, ranks, options.time_limit, &failure_) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(std::make_unique<RankSet>(this, rank));
  }
}

InProcessPool::~InProcessPool() = default;

CommunicatorSet* InProcessPool::communicators(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

StepAgreement* InProcessPool::agreement(int32_t rank) {
  return ranks_[static_cast<size_t>(rank)].get();
}

Status InProcessPool::Compare(Visit* visit, int32_t first_rank, int32_t size,
                              Contribution contribution) {
  if (Status entered = visit->Enter(std::move(contribution)); !entered.ok()) {
    // A time-out has to release the ranks that wait elsewhere.
    Fail(entered);
    return entered;
  }
  std::vector<std::string> brought;
  for (int32_t r = 0; r < size; ++r) brought.push_back(visit->Of(r).what);
  std::string message = DescribeDifference(first_rank, brought);
  if (message.empty()) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(visit->Leave());
  return {StatusCode::kFailedPrecondition, std::move(message)};
}

Meeting* InProcessPool::MeetingOf(Block block) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Meeting>& meeting = meetings_[block];
  if (meeting == nullptr) {
    meeting = std::make_unique<Meeting>(block.first_rank, block.degree,
                                        options_.time_limit, &failure_);
  }
  return meeting.get();
}

void InProcessPool::AbortBy(int32_t rank, const Status& cause) {
  Fail({StatusCode::kAborted,
        "rank " + std::to_string(rank) + ": " + cause.ToString()});
}

void InProcessPool::Fail(const Status& status) {
  failure_.Set(status);
  control_.Wake();
  const std::lock_guard lock(mutex_);
  for (const auto& [block, meeting] : meetings_) meeting->Wake();
}

}  // namespace skrull::exec
