// Faults planted at any call of an executor's device, backend or communicators.
#ifndef SKRULL_TESTS_CUDA_FAULTS_H_
#define SKRULL_TESTS_CUDA_FAULTS_H_

#include <catch2/catch.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/communicator.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/tests/cuda/forwarding_device.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

// Counts the calls of one rank, and makes one of them fail.
class Fault {
 public:
  enum class Kind {
    kAtOnce,  // the call itself fails and does nothing
    kLater,   // it succeeds, and fails when its turn on the stream comes
  };
  // The call `at`, from 0, fails; -1: none.
  Fault(int at, Kind kind) : at_(at), kind_(kind) {}

  // For a call without a stream: fails, whatever the kind.
  Status Pass() { return calls_++ == at_ ? Planted() : Status(); }
  // For a call with one. Sets `skip` if the call is to do nothing.
  Status Pass(Stream stream, bool* skip) {
    *skip = calls_++ == at_;
    if (!*skip) return {};
    if (kind_ == Kind::kAtOnce) return Planted();
    return EnqueueOnHost(stream, [](const Status&) { return Planted(); });
  }
  int calls() const { return calls_; }

 private:
  static Status Planted() {
    return {StatusCode::kDeviceError, "a planted fault"};
  }

  const int at_;
  const Kind kind_;
  int calls_ = 0;
};

class FaultyDevice final : public ForwardingDevice {
 public:
  FaultyDevice(Device* device, Fault* fault)
      : ForwardingDevice(device), device_(device), fault_(fault) {}

  Result<Buffer> Allocate(int64_t bytes) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return device_->Allocate(bytes);
  }
  Result<Event> CreateEvent() override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return device_->CreateEvent();
  }
  Status Record(Event event, Stream stream) override {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    return skip && !status.ok() ? status : device_->Record(event, stream);
  }
  Status Wait(Stream stream, Event event) override {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    return skip && !status.ok() ? status : device_->Wait(stream, event);
  }
  Status Upload(void* dst, const void* src, int64_t bytes) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return device_->Upload(dst, src, bytes);
  }
  Status Zero(void* dst, int64_t bytes, Stream stream) override {
    return Try(stream, [&] { return device_->Zero(dst, bytes, stream); });
  }
  Status Copy(void* dst, const void* src, int64_t bytes,
              Stream stream) override {
    return Try(stream, [&] { return device_->Copy(dst, src, bytes, stream); });
  }
  Status Sum(void* dst, std::span<const void* const> addends, int64_t count,
             DType dtype, Stream stream) override {
    return Try(stream, [&] {
      return device_->Sum(dst, addends, count, dtype, stream);
    });
  }
  Status GatherRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                    Stream stream) override {
    return Try(stream,
               [&] { return device_->GatherRows(pairs, runs, stream); });
  }
  Status AddRows(std::span<const RowPair> pairs, RunList<CopyRun> runs,
                 Stream stream) override {
    return Try(stream, [&] { return device_->AddRows(pairs, runs, stream); });
  }
  Status FoldRows(std::span<const RowPair> pairs, RunList<FoldRun> runs,
                  Stream stream) override {
    return Try(stream, [&] { return device_->FoldRows(pairs, runs, stream); });
  }
  Status MergeAttention(const MergeRows& rows, RunList<CopyRun> runs,
                        Stream stream) override {
    return Try(stream,
               [&] { return device_->MergeAttention(rows, runs, stream); });
  }

 private:
  template <class Call>
  Status Try(Stream stream, const Call& call) {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    return skip ? status : call();
  }

  Device* const device_;
  Fault* const fault_;
};

class FaultyBackend final : public AttentionBackend {
 public:
  FaultyBackend(AttentionBackend* backend, Fault* fault)
      : backend_(backend), fault_(fault) {}

  std::string_view name() const override { return backend_->name(); }
  MemoryKind memory() const override { return backend_->memory(); }
  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    return backend_->Supports(problem, pass);
  }
  LseOrder lse_order() const override { return backend_->lse_order(); }
  int32_t kv_tail_rows() const override { return 3; }  // finite, or NaN shows
  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return backend_->Prepare(problem, bounds, pass);
  }
  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    return skip ? status : backend_->Forward(call, workspace, stream);
  }
  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    return skip ? status : backend_->Backward(call, workspace, stream);
  }

 private:
  AttentionBackend* const backend_;
  Fault* const fault_;
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator* communicator, Fault* fault)
      : communicator_(communicator), fault_(fault) {}

  int32_t rank() const override { return communicator_->rank(); }
  int32_t size() const override { return communicator_->size(); }
  Result<Buffer> Allocate(int64_t bytes) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return communicator_->Allocate(bytes);
  }
  Status AllGather(const void* send, void* recv, int64_t bytes,
                   Stream stream) override {
    return Try(stream, [&] {
      return communicator_->AllGather(send, recv, bytes, stream);
    });
  }
  Status ReduceScatter(const void* send, void* recv, int64_t count, DType dtype,
                       Stream stream) override {
    return Try(stream, [&] {
      return communicator_->ReduceScatter(send, recv, count, dtype, stream);
    });
  }
  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return Try(stream,
               [&] { return communicator_->Shift(send, recv, bytes, stream); });
  }
  Status Poll() override { return communicator_->Poll(); }
  void Abort(const Status& cause) noexcept override {
    communicator_->Abort(cause);
  }

 private:
  template <class Call>
  Status Try(Stream stream, const Call& call) {
    bool skip = false;
    const Status status = fault_->Pass(stream, &skip);
    // A collective that fails later still fails on all ranks: enter it.
    return skip && !status.ok() ? status : call();
  }

  Communicator* const communicator_;
  Fault* const fault_;
};

class FaultyCommunicators final : public CommunicatorSet, public StepAgreement {
 public:
  FaultyCommunicators(CommunicatorSet* set, StepAgreement* agreement,
                      Fault* fault)
      : set_(set), agreement_(agreement), fault_(fault) {}

  int32_t rank() const override { return set_->rank(); }
  int32_t size() const override { return set_->size(); }
  Status Announce(std::span<const Block> blocks) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return set_->Announce(blocks);
  }
  Result<Communicator*> Find(Block block) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    const Result<Communicator*> found = set_->Find(block);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    std::unique_ptr<Communicator>& mine = communicators_[block];
    if (mine == nullptr) {
      mine = std::make_unique<FaultyCommunicator>(*found, fault_);
    }
    return mine.get();
  }
  Status Poll() override { return set_->Poll(); }
  void Abort(const Status& cause) noexcept override { set_->Abort(cause); }
  Status Agree(std::string_view digest) override {
    SKRULL_EXEC_RETURN_IF_ERROR(fault_->Pass());
    return agreement_->Agree(digest);
  }

 private:
  CommunicatorSet* const set_;
  StepAgreement* const agreement_;
  Fault* const fault_;
  std::map<Block, std::unique_ptr<Communicator>> communicators_;
};

// All of one rank's parts, each able to fail.
class FaultyParts {
 public:
  FaultyParts(const RankParts& parts, Fault* fault)
      : device_(parts.device, fault),
        backend_(parts.backend, fault),
        communicators_(parts.communicators, parts.agreement, fault) {}

  RankParts parts() {
    return {.device = &device_,
            .backend = &backend_,
            .communicators = &communicators_,
            .agreement = &communicators_};
  }

 private:
  FaultyDevice device_;
  FaultyBackend backend_;
  FaultyCommunicators communicators_;
};

// Checks that a fault planted in rank `rank` reached all: that rank reports it,
// the others that they were aborted by it; and what each call returned first is
// what stays. An OK in `after` of the rank itself: it had no executor to ask.
inline void CheckFaultIsReported(size_t rank,
                                 const std::vector<Status>& statuses,
                                 const std::vector<Status>& after) {
  for (size_t r = 0; r < statuses.size(); ++r) {
    INFO("reported by rank " << r << ": " << statuses[r].ToString());
    const bool at_fault = r == rank;
    // Without an executor there is nothing to ask.
    if (at_fault && after[r].ok()) {
      CHECK_FALSE(statuses[r].ok());
      continue;
    }
    CHECK(after[r].code() ==
          (at_fault ? StatusCode::kDeviceError : StatusCode::kAborted));
    CHECK_THAT(after[r].message(), Catch::Contains("a planted fault"));
    if (!at_fault) {
      CHECK_THAT(after[r].message(),
                 Catch::Contains("rank " + std::to_string(rank)));
    }
    // The first failure is the one that stays.
    if (!statuses[r].ok()) CHECK(statuses[r] == after[r]);
  }
}

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_FAULTS_H_
