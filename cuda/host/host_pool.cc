#include "skrull/cuda/host/host_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <utility>

#include "skrull/cuda/cpu/host_device.h"
#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/cpu/rank_sum.h"
#include "skrull/cuda/host/mesh.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/cuda/rank_votes.h"

namespace skrull::exec {
namespace {

std::string BlockName(Block block) {
  return "[" + std::to_string(block.first_rank) + ", " +
         std::to_string(block.first_rank + block.degree) + ")";
}

Status AbortedBy(int32_t rank, const Status& cause) {
  return {StatusCode::kAborted,
          "rank " + std::to_string(rank) + ": " + cause.ToString()};
}

}  // namespace

// This rank's end of a block.
class HostPool::BlockCommunicator final : public Communicator {
 public:
  BlockCommunicator(HostPool* pool, Block block)
      : pool_(pool),
        block_(block),
        rank_(pool->options_.rank - block.first_rank) {}

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
    return Enqueue({.kind = MessageKind::kAllGather, .bytes = bytes}, stream,
                   [=, this](const MessageLabel& label) -> Status {
                     char* const to = static_cast<char*>(recv);
                     std::vector<Links::Out> out;
                     std::vector<Links::In> in;
                     ForEachPeer([&](int32_t r, int32_t peer) {
                       out.push_back({.peer = peer, .data = send});
                       in.push_back({.peer = peer, .data = to + r * bytes});
                     });
                     std::memcpy(to + rank_ * bytes, send,
                                 static_cast<size_t>(bytes));
                     return Exchange(label, out, in);
                   });
  }

  Status ReduceScatter(const void* send, void* recv, int64_t count, DType dtype,
                       Stream stream) override {
    const int64_t bytes = count * SizeOf(dtype);
    return Enqueue(
        {.kind = MessageKind::kReduceScatter, .dtype = dtype, .bytes = bytes},
        stream, [=, this](const MessageLabel& label) -> Status {
          Result<Buffer> scratch = AllocateHostMemory(size() * bytes);
          SKRULL_EXEC_RETURN_IF_ERROR(scratch.status());
          const char* const from = static_cast<const char*>(send);
          char* const received = static_cast<char*>(scratch->data());
          std::vector<Links::Out> out;
          std::vector<Links::In> in;
          std::vector<const void*> parts(static_cast<size_t>(size()));
          ForEachPeer([&](int32_t r, int32_t peer) {
            out.push_back({.peer = peer, .data = from + r * bytes});
            in.push_back({.peer = peer, .data = received + r * bytes});
            parts[static_cast<size_t>(r)] = received + r * bytes;
          });
          parts[static_cast<size_t>(rank_)] = from + rank_ * bytes;
          SKRULL_EXEC_RETURN_IF_ERROR(Exchange(label, out, in));
          WithHostType(dtype,
                       [&]<class T>(T) { SumRanks<T>(parts, 0, count, recv); });
          return {};
        });
  }

  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return Enqueue(
        {.kind = MessageKind::kShift, .bytes = bytes}, stream,
        [=, this](const MessageLabel& label) -> Status {
          if (size() == 1) {
            std::memcpy(recv, send, static_cast<size_t>(bytes));
            return {};
          }
          const int32_t up = block_.first_rank + (rank_ + 1) % size();
          const int32_t down =
              block_.first_rank + (rank_ - 1 + size()) % size();
          return Exchange(label, std::vector<Links::Out>{{up, send}},
                          std::vector<Links::In>{{down, recv, nullptr}});
        });
  }

  Status Poll() override { return pool_->links_.Poll(); }

  void Abort(const Status& cause) noexcept override {
    pool_->communicators()->Abort(cause);
  }

 private:
  using Run = std::function<Status(const MessageLabel&)>;

  // visit(rank in the block, rank in the pool), starting behind this rank, so
  // that not all send to the same one first.
  template <class Visit>
  void ForEachPeer(const Visit& visit) const {
    for (int32_t i = 1; i < block_.degree; ++i) {
      const int32_t r = (rank_ + i) % block_.degree;
      visit(r, block_.first_rank + r);
    }
  }

  Status Exchange(const MessageLabel& label, const std::vector<Links::Out>& out,
                  const std::vector<Links::In>& in) {
    return pool_->links_.Exchange(label, out, in, pool_->options_.time_limit);
  }

  Status Enqueue(MessageLabel label, Stream stream, Run run) {
    SKRULL_EXEC_RETURN_IF_ERROR(Poll());
    label.block = block_;
    label.sequence = next_sequence_++;
    Status enqueued = EnqueueOnHost(
        stream,
        [this, label, run = std::move(run)](const Status& device) -> Status {
          if (!device.ok()) {
            Abort(device);
            return {};
          }
          Status done;
          try {
            done = run(label);
          } catch (const std::bad_alloc&) {
            done = {StatusCode::kOutOfMemory,
                    "no memory for " + LabelText(label)};
          }
          // One that ran out of memory has not come to the others.
          if (!done.ok()) Abort(done);
          return done.ok() ? done : Poll();
        });
    // So has one that is not enqueued.
    if (!enqueued.ok()) Abort(enqueued);
    return enqueued;
  }

  HostPool* const pool_;
  const Block block_;
  const int32_t rank_;
  uint64_t next_sequence_ = 0;
};

class HostPool::RankSet final : public CommunicatorSet, public StepAgreement {
 public:
  explicit RankSet(HostPool* pool) : pool_(pool) {}

  int32_t rank() const override { return pool_->options_.rank; }
  int32_t size() const override { return pool_->options_.size; }

  Status Announce(std::span<const Block> blocks) override {
    std::string what = "blocks";
    for (const Block& block : blocks) {
      if (block.first_rank < 0 || block.degree < 1 ||
          int64_t{block.first_rank} + block.degree > size()) {
        return InvalidArgument("ranks " + BlockName(block) +
                               " are not all among the pool's " +
                               std::to_string(size()));
      }
      what += " " + BlockName(block);
    }
    SKRULL_EXEC_RETURN_IF_ERROR(Compare(std::move(what)));
    for (const Block& block : blocks) {
      const int32_t in_block = rank() - block.first_rank;
      if (in_block < 0 || in_block >= block.degree) continue;
      std::unique_ptr<BlockCommunicator>& made = communicators_[block];
      if (made == nullptr) {
        made = std::make_unique<BlockCommunicator>(pool_, block);
      }
    }
    return {};
  }

  Result<Communicator*> Find(Block block) override {
    const auto found = communicators_.find(block);
    if (found == communicators_.end()) {
      return Status(StatusCode::kNotFound,
                    "rank " + std::to_string(rank()) +
                        " has no communicator of ranks " + BlockName(block));
    }
    return static_cast<Communicator*>(found->second.get());
  }

  Status Poll() override { return pool_->links_.Poll(); }

  void Abort(const Status& cause) noexcept override {
    pool_->links_.Fail(AbortedBy(rank(), cause));
  }

  Status Agree(std::string_view digest) override {
    return Compare("plan " + std::string(digest));
  }

 private:
  // Sends all ranks what this one brought, and compares.
  Status Compare(std::string what) {
    if (std::ssize(what) > kMaxControlBytes) {
      return InvalidArgument(std::to_string(what.size()) +
                             " bytes to agree on, where at most " +
                             std::to_string(kMaxControlBytes) + " are allowed");
    }
    std::vector<std::string> brought(static_cast<size_t>(size()));
    std::vector<Links::Out> out;
    std::vector<Links::In> in;
    for (int32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      out.push_back({.peer = r, .data = what.data()});
      in.push_back({.peer = r, .text = &brought[static_cast<size_t>(r)]});
    }
    const MessageLabel label{.block = {0, 0},
                             .sequence = next_sequence_++,
                             .kind = MessageKind::kControl,
                             .bytes = std::ssize(what)};
    SKRULL_EXEC_RETURN_IF_ERROR(
        pool_->links_.Exchange(label, out, in, pool_->options_.time_limit));
    brought[static_cast<size_t>(rank())] = std::move(what);
    std::string difference = DescribeDifference(0, brought);
    if (difference.empty()) return {};
    return {StatusCode::kFailedPrecondition, std::move(difference)};
  }

  HostPool* const pool_;
  uint64_t next_sequence_ = 0;  // of agreements and announcements
  std::map<Block, std::unique_ptr<BlockCommunicator>> communicators_;
};

Result<std::unique_ptr<HostPool>> HostPool::Create(
    const HostPoolOptions& options, const Rendezvous& rendezvous) {
  Result<std::vector<Fd>> connections =
      ConnectMesh({.rank = options.rank,
                   .size = options.size,
                   .host = options.host,
                   .time_limit = options.connect_limit},
                  rendezvous);
  if (!connections.ok()) return connections.status();
  try {
    return std::unique_ptr<HostPool>(
        new HostPool(options, *std::move(connections)));
  } catch (const std::system_error& e) {
    return Status(StatusCode::kOutOfMemory,
                  std::string("no thread for the connections: ") + e.what());
  }
}

HostPool::HostPool(const HostPoolOptions& options, std::vector<Fd> connections)
    : options_(options),
      links_(options.rank, std::move(connections)),
      set_(std::make_unique<RankSet>(this)) {}

HostPool::~HostPool() = default;

CommunicatorSet* HostPool::communicators() { return set_.get(); }
StepAgreement* HostPool::agreement() { return set_.get(); }

}  // namespace skrull::exec
