// Communicators that note what they are asked to do.
#ifndef SKRULL_TESTS_CUDA_RECORDING_COMMUNICATORS_H_
#define SKRULL_TESTS_CUDA_RECORDING_COMMUNICATORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "skrull/cuda/communicator.h"

namespace skrull::exec::testing {

struct Collective {
  enum class Kind { kAllGather, kReduceScatter, kShift };
  Kind kind = Kind::kAllGather;
  Block block;
  int64_t bytes = 0;  // that one rank contributes to each

  friend bool operator==(const Collective&, const Collective&) = default;
};

// Passes everything on to `set`, which outlives it.
class RecordingCommunicators final : public CommunicatorSet {
 public:
  explicit RecordingCommunicators(CommunicatorSet* set) : set_(set) {}

  const std::vector<Collective>& collectives() const { return collectives_; }

  int32_t rank() const override { return set_->rank(); }
  int32_t size() const override { return set_->size(); }
  Status Announce(std::span<const Block> blocks) override {
    return set_->Announce(blocks);
  }
  Result<Communicator*> Find(Block block) override {
    const Result<Communicator*> found = set_->Find(block);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    auto& mine = communicators_[block];
    if (mine == nullptr) {
      mine = std::make_unique<Recorder>(*found, block, &collectives_);
    }
    return static_cast<Communicator*>(mine.get());
  }
  Status Poll() override { return set_->Poll(); }
  void Abort(const Status& cause) noexcept override { set_->Abort(cause); }

 private:
  class Recorder final : public Communicator {
   public:
    Recorder(Communicator* communicator, Block block,
             std::vector<Collective>* collectives)
        : communicator_(communicator),
          block_(block),
          collectives_(collectives) {}

    int32_t rank() const override { return communicator_->rank(); }
    int32_t size() const override { return communicator_->size(); }
    Result<Buffer> Allocate(int64_t bytes) override {
      return communicator_->Allocate(bytes);
    }
    Status AllGather(const void* send, void* recv, int64_t bytes,
                     Stream stream) override {
      Note(Collective::Kind::kAllGather, bytes);
      return communicator_->AllGather(send, recv, bytes, stream);
    }
    Status ReduceScatter(const void* send, void* recv, int64_t count,
                         DType dtype, Stream stream) override {
      Note(Collective::Kind::kReduceScatter, count * SizeOf(dtype));
      return communicator_->ReduceScatter(send, recv, count, dtype, stream);
    }
    Status Shift(const void* send, void* recv, int64_t bytes,
                 Stream stream) override {
      Note(Collective::Kind::kShift, bytes);
      return communicator_->Shift(send, recv, bytes, stream);
    }
    Status Poll() override { return communicator_->Poll(); }
    void Abort(const Status& cause) noexcept override {
      communicator_->Abort(cause);
    }

   private:
    void Note(Collective::Kind kind, int64_t bytes) {
      collectives_->push_back({kind, block_, bytes});
    }

    Communicator* const communicator_;
    const Block block_;
    std::vector<Collective>* const collectives_;
  };

  CommunicatorSet* const set_;
  std::vector<Collective> collectives_;
  std::map<Block, std::unique_ptr<Recorder>> communicators_;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_RECORDING_COMMUNICATORS_H_
