#include "skrull/cuda/nccl/nccl_pool.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "skrull/cuda/nccl/split_plan.h"

namespace skrull::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPause{1};
// Of windows, by NCCL's header.
constexpr int64_t kWindowAlignment = 4096;

std::string BlockName(Block block) {
  return "ranks [" + std::to_string(block.first_rank) + ", " +
         std::to_string(block.first_rank + block.degree) + ")";
}

std::string RankName(int32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

class NcclPool::BlockCommunicator final : public Communicator {
 public:
  BlockCommunicator(NcclPool* pool, Handle* handle, Block block)
      : pool_(pool),
        handle_(handle),
        block_(block),
        rank_(pool->rank() - block.first_rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return block_.degree; }

  Result<Buffer> Allocate(int64_t bytes) override {
    if (bytes < 0) {
      return InvalidArgument("a buffer of " + std::to_string(bytes) + " bytes");
    }
    const int64_t size = std::max(
        (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment,
        kWindowAlignment);
    void* data = nullptr;
    // A rank without memory must not leave the others alone in what follows.
    SKRULL_EXEC_RETURN_IF_ERROR(
        pool_->Call(handle_, "allocating " + std::to_string(size) + " bytes",
                    [&](NcclComm) {
                      // NCCL takes memory of the thread's device, whatever
                      // communicator it is for, and this may not be the thread
                      // that connected.
                      const NcclResult selected =
                          pool_->api_->SetDevice(pool_->options_.device);
                      return selected == NcclResult::kSuccess
                                 ? pool_->api_->MemAlloc(&data, size)
                                 : selected;
                    }));
    const auto window = std::make_shared<NcclWindow>(nullptr);
    Buffer buffer(
        data, bytes, [pool = pool_, handle = handle_, window](void* p) {
          const std::lock_guard lock(pool->mutex_);
          // On whatever thread this is. Nobody could do anything about errors.
          (void)pool->api_->SetDevice(pool->options_.device);
          if (*window != nullptr && handle->comm != nullptr) {
            (void)pool->api_->CommWindowDeregister(handle->comm, *window);
          }
          (void)pool->api_->MemFree(p);
        });
    if (pool_->options_.register_buffers) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          pool_->Call(handle_, "registering " + std::to_string(size) + " bytes",
                      [&](NcclComm comm) {
                        return pool_->api_->CommWindowRegister(comm, data, size,
                                                               window.get());
                      }));
    }
    return buffer;
  }

  Status AllGather(const void* send, void* recv, int64_t bytes,
                   Stream stream) override {
    return pool_->Call(handle_, "all-gather", [&](NcclComm comm) {
      return pool_->api_->AllGather(send, recv, bytes, comm, stream);
    });
  }

  Status ReduceScatter(const void* send, void* recv, int64_t count, DType dtype,
                       Stream stream) override {
    return pool_->Call(handle_, "reduce-scatter", [&](NcclComm comm) {
      return pool_->api_->ReduceScatterSum(send, recv, count, dtype, comm,
                                           stream);
    });
  }

  Status Shift(const void* send, void* recv, int64_t bytes,
               Stream stream) override {
    return pool_->Call(handle_, "shift", [&](NcclComm comm) {
      return pool_->api_->SendRecv(send, (rank_ + 1) % size(), recv,
                                   (rank_ - 1 + size()) % size(), bytes, comm,
                                   stream);
    });
  }

  Status Poll() override { return pool_->Poll(); }

  void Abort(const Status& cause) noexcept override { pool_->Abort(cause); }

 private:
  NcclPool* const pool_;
  Handle* const handle_;
  const Block block_;
  const int32_t rank_;
};

NcclPool::NcclPool(const NcclPoolOptions& options, NcclApi* api,
                   CommunicatorSet* control)
    : options_(options), api_(api), control_(control) {}

Result<std::unique_ptr<NcclPool>> NcclPool::Create(
    const NcclPoolOptions& options, NcclApi* api, CommunicatorSet* control,
    const Rendezvous& rendezvous) {
  std::unique_ptr<NcclPool> pool(new NcclPool(options, api, control));
  Status status = pool->Connect(rendezvous);
  if (status.ok()) {
    try {
      pool->watch_ = std::thread([raw = pool.get()] { raw->Watch(); });
      return pool;
    } catch (const std::system_error& e) {
      status = {StatusCode::kOutOfMemory,
                std::string("no thread for the watch: ") + e.what()};
    }
  }
  pool->Fail(status, /*tell=*/true);
  return status;
}

NcclPool::~NcclPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (failure_.Get().ok()) Close();
}

Status NcclPool::Connect(const Rendezvous& rendezvous) {
  if (const NcclResult set = api_->SetDevice(options_.device);
      set != NcclResult::kSuccess) {
    return ErrorOf("selecting device " + std::to_string(options_.device), set);
  }
  std::string offer;
  if (rank() == 0) {
    NcclId id;
    if (const NcclResult made = api_->GetUniqueId(&id);
        made != NcclResult::kSuccess) {
      return ErrorOf("making a unique id", made);
    }
    offer.assign(id.data(), id.size());
  }
  const Result<std::string> met = rendezvous(offer);
  if (!met.ok()) return met.status();
  NcclId id;
  if (met->size() != id.size()) {
    return {StatusCode::kCommFailed, "the rendezvous gave " +
                                         std::to_string(met->size()) +
                                         " bytes, where NCCL's unique id has " +
                                         std::to_string(id.size())};
  }
  std::memcpy(id.data(), met->data(), id.size());

  // Another rank may have given up meanwhile.
  SKRULL_EXEC_RETURN_IF_ERROR(control_->Poll());
  std::unique_lock lock(mutex_);
  const Block all{0, size()};
  handles_.push_back(std::make_unique<Handle>(Handle{all, nullptr}));
  Handle* const world = handles_.back().get();
  const NcclResult result =
      api_->CommInitRank(&world->comm, size(), id, rank());
  SKRULL_EXEC_RETURN_IF_ERROR(Settle(
      &lock, world, "connecting " + std::to_string(size()) + " ranks", result));
  return {};
}

Status NcclPool::Announce(std::span<const Block> blocks) {
  SKRULL_EXEC_RETURN_IF_ERROR(Poll());
  SKRULL_EXEC_RETURN_IF_ERROR(control_->Announce(blocks));
  std::vector<Block> fresh;
  for (const Block& block : blocks) {
    if (!announced_.insert(block).second) continue;
    if (block == Block{0, size()}) {
      communicators_[block] = std::make_unique<BlockCommunicator>(
          this, handles_.front().get(), block);
    } else {
      fresh.push_back(block);
    }
  }
  for (const std::vector<Block>& split : PlanSplits(fresh)) {
    SKRULL_EXEC_RETURN_IF_ERROR(Split(split));
  }
  return {};
}

Status NcclPool::Split(std::span<const Block> blocks) {
  int32_t color = -1;
  int32_t key = 0;
  Block mine;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int32_t in_block = rank() - blocks[i].first_rank;
    if (in_block < 0 || in_block >= blocks[i].degree) continue;
    color = static_cast<int32_t>(i);
    key = in_block;
    mine = blocks[i];
  }
  auto part = std::make_unique<Handle>(Handle{mine, nullptr});
  Handle* const made = part.get();
  const std::string what =
      "splitting off " + (color < 0 ? "other ranks" : BlockName(mine));
  {
    // Before the call, so that a failure meanwhile aborts it too.
    const std::lock_guard lock(mutex_);
    handles_.push_back(std::move(part));
  }
  SKRULL_EXEC_RETURN_IF_ERROR(
      Call(handles_.front().get(), what, [&](NcclComm comm) {
        return api_->CommSplit(comm, color, key, &made->comm);
      }));
  if (color < 0) return {};
  SKRULL_EXEC_RETURN_IF_ERROR(
      Call(made, what, [](NcclComm) { return NcclResult::kInProgress; }));
  communicators_[mine] = std::make_unique<BlockCommunicator>(this, made, mine);
  return {};
}

Result<Communicator*> NcclPool::Find(Block block) {
  const auto found = communicators_.find(block);
  if (found == communicators_.end()) {
    return Status(
        StatusCode::kNotFound,
        RankName(rank()) + " has no communicator of " + BlockName(block));
  }
  return static_cast<Communicator*>(found->second.get());
}

template <class F>
Status NcclPool::Call(Handle* handle, const std::string& what, const F& call) {
  Status status;
  {
    std::unique_lock lock(mutex_);
    SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
    if (handle->comm == nullptr) {
      status = {StatusCode::kInternal, what + ": no communicator"};
    } else {
      status = Settle(&lock, handle, what, call(handle->comm));
    }
  }
  if (status.ok()) return status;
  Fail(status, /*tell=*/true);
  return failure_.Get();
}

Status NcclPool::Settle(std::unique_lock<std::mutex>* lock, Handle* handle,
                        const std::string& what, NcclResult result) {
  const auto deadline = steady_clock::now() + options_.time_limit;
  while (result == NcclResult::kInProgress) {
    SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
    const NcclResult asked = api_->CommGetAsyncError(handle->comm, &result);
    if (asked != NcclResult::kSuccess) return ErrorOf(what, asked);
    if (result != NcclResult::kInProgress) break;
    lock->unlock();
    const Status control = control_->Poll();
    if (control.ok()) std::this_thread::sleep_for(kPause);
    lock->lock();
    if (!control.ok()) return control;
    if (steady_clock::now() >= deadline) {
      const auto waited =
          std::chrono::duration_cast<milliseconds>(options_.time_limit);
      return {StatusCode::kDeadlineExceeded,
              RankName(rank()) + " waited " + std::to_string(waited.count()) +
                  " ms for NCCL, " + what + ": did all of " +
                  BlockName(handle->block) + " come?"};
    }
  }
  return result == NcclResult::kSuccess ? Status() : ErrorOf(what, result);
}

Status NcclPool::ErrorOf(const std::string& what, NcclResult result) {
  StatusCode code = StatusCode::kCommFailed;
  if (result == NcclResult::kUnhandledCudaError) {
    code = StatusCode::kDeviceError;
  } else if (result == NcclResult::kInvalidArgument ||
             result == NcclResult::kInvalidUsage) {
    code = StatusCode::kInvalidArgument;
  }
  return {code, "NCCL, " + what + ": " + api_->ErrorText(result)};
}

Status NcclPool::Poll() {
  SKRULL_EXEC_RETURN_IF_ERROR(failure_.Get());
  if (const Status control = control_->Poll(); !control.ok()) {
    Fail(control, /*tell=*/false);
    return failure_.Get();
  }
  Status status;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& handle : handles_) {
      if (handle->comm == nullptr) continue;
      NcclResult state = NcclResult::kSuccess;
      NcclResult result = api_->CommGetAsyncError(handle->comm, &state);
      if (result == NcclResult::kSuccess) result = state;
      if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) {
        continue;
      }
      status =
          ErrorOf("communicating among " + BlockName(handle->block), result);
      break;
    }
  }
  if (!status.ok()) Fail(status, /*tell=*/true);
  return failure_.Get();
}

void NcclPool::Abort(const Status& cause) noexcept {
  Fail({StatusCode::kAborted, RankName(rank()) + ": " + cause.ToString()},
       /*tell=*/false);
  control_->Abort(cause);
}

void NcclPool::Fail(const Status& status, bool tell) noexcept {
  failure_.Set(status);
  if (tell) control_->Abort(status);
  const std::lock_guard lock(mutex_);
  for (const auto& handle : handles_) {
    if (handle->comm == nullptr) continue;
    // What it returns changes nothing: the communicator is lost either way.
    (void)api_->CommAbort(std::exchange(handle->comm, nullptr));
  }
}

void NcclPool::Close() noexcept {
  (void)api_->SetDevice(options_.device);
  std::unique_lock lock(mutex_);
  // Parts before what they were split from.
  for (auto it = handles_.rbegin(); it != handles_.rend(); ++it) {
    Handle* const handle = it->get();
    if (handle->comm == nullptr) continue;
    const bool flushed =
        Settle(&lock, handle, "closing", api_->CommFinalize(handle->comm)).ok();
    const NcclComm comm = std::exchange(handle->comm, nullptr);
    (void)(flushed ? api_->CommDestroy(comm) : api_->CommAbort(comm));
  }
}

void NcclPool::Watch() {
  (void)api_->SetDevice(options_.device);
  while (Poll().ok()) {
    std::unique_lock lock(mutex_);
    if (stop_.wait_for(lock, options_.poll_interval,
                       [&] { return stopping_; })) {
      return;
    }
  }
}

}  // namespace skrull::exec
