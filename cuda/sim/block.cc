#include "skrull/cuda/sim/block.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "skrull/cuda/sim/cuda_builtins.h"

namespace skrull::exec::sim {
namespace {

thread_local Block* current_block = nullptr;

// Leaves a thread that is unwound because the launch has failed.
struct Unwinding {};

int ThreadCount(dim3 size) {
  return static_cast<int>(size.x * size.y * size.z);
}

uint3 IndexOf(int number, dim3 size) {
  const auto n = static_cast<unsigned>(number);
  return {n % size.x, n / size.x % size.y, n / size.x / size.y};
}

unsigned Bit(int lane) { return 1U << static_cast<unsigned>(lane); }

std::string PlaceName(const std::source_location& where) {
  const std::string_view path = where.file_name();
  const size_t slash = path.rfind('/');
  return std::string(
             path.substr(slash == std::string_view::npos ? 0 : slash + 1)) +
         ":" + std::to_string(where.line());
}

bool SamePlace(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

}  // namespace

Block::Block(dim3 grid, dim3 size, int64_t shared_bytes,
             const std::function<void()>* kernel, Stacks* stacks)
    : grid_(grid),
      size_(size),
      shared_(shared_bytes),
      threads_(static_cast<size_t>(ThreadCount(size))),
      warps_((threads_.size() + kWarpSize - 1) / kWarpSize) {
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread.stack = stacks->Get(i);
    thread.index = IndexOf(static_cast<int>(i), size);
    thread.lane = static_cast<int>(i % kWarpSize);
    thread.warp = &warps_[i / kWarpSize];
    if (thread.lane == 0) thread.warp->threads = &thread;
    thread.body = [this, kernel] {
      if (unwinding_) return;  // before it has begun
      try {
        (*kernel)();
      } catch (const Unwinding&) {  // NOLINT(bugprone-empty-catch)
      } catch (...) {
        if (failure_ == nullptr) failure_ = std::current_exception();
      }
    };
  }
}

void Block::Run(uint3 index, uint64_t seed) {
  index_ = index;
  random_.seed(static_cast<std::minstd_rand::result_type>(seed ^ (seed >> 32)));
  hurries_ = random_() % 2 == 0;
  ahead_ = nullptr;
  shared_.Poison();
  unwinding_ = false;
  failure_ = nullptr;
  live_ = static_cast<int>(threads_.size());
  arrived_ = 0;
  ready_.clear();
  for (Warp& warp : warps_) warp.live = warp.arrived = 0;
  for (Thread& thread : threads_) {
    thread.warp->live |= Bit(thread.lane);
    thread.storage = nullptr;
    thread.fiber.Start(thread.stack, Stacks::kBytes, &thread.body);
    MakeReady(&thread);
  }
  try {
    RunToEnd();
  } catch (...) {
    UnwindAll();
    throw;
  }
  if (!shared_.GuardIsIntact()) {
    Fail("a thread wrote behind the dynamic shared memory");
  }
}

void Block::RunToEnd() {
  while (live_ > 0) {
    if (ready_.empty()) Fail("deadlock: " + DescribeWaiting());
    Thread*& chosen = ready_[ChooseReady()];
    Thread* thread = std::exchange(chosen, ready_.back());
    ready_.pop_back();
    RunThread(thread);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (!thread->fiber.is_running()) Retire(thread);
  }
}

size_t Block::ChooseReady() {
  const size_t any = random_() % ready_.size();
  if (!hurries_) return any;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i]->warp == ahead_) return i;
  }
  ahead_ = ready_[any]->warp;
  return any;
}

void Block::RunThread(Thread* thread) {
  Block* const outer = std::exchange(current_block, this);
  running_ = thread;
  threadIdx = thread->index;
  blockIdx = index_;
  blockDim = size_;
  gridDim = grid_;
  thread->fiber.Resume();
  running_ = nullptr;
  current_block = outer;
}

void Block::Suspend() {
  running_->fiber.Suspend();
  if (unwinding_) throw Unwinding();
}

void Block::MakeReady(Thread* thread) {
  thread->state = State::kReady;
  ready_.push_back(thread);
}

// Those that wait for it may now be complete.
void Block::Retire(Thread* thread) {
  thread->state = State::kDone;
  --live_;
  Warp* warp = thread->warp;
  warp->live &= ~Bit(thread->lane);
  TryReleaseBarrier();
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((warp->arrived & Bit(lane)) == 0) continue;
    TryReleaseMeeting(warp, warp->threads[lane].lanes);
  }
}

void Block::Sync(const std::source_location& where) {
  running_->state = State::kAtBarrier;
  running_->where = where;
  ++arrived_;
  TryReleaseBarrier();
  Suspend();
}

void Block::TryReleaseBarrier() {
  if (arrived_ == 0 || arrived_ < live_) return;
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state != State::kAtBarrier) continue;
    if (first == nullptr) first = &thread;
    if (!SamePlace(first->where, thread.where)) {
      Fail("threads meet in different barriers: " + DescribeWaiting());
    }
  }
  arrived_ = 0;
  for (Thread& thread : threads_) {
    if (thread.state == State::kAtBarrier) MakeReady(&thread);
  }
}

void Block::Meet(unsigned lanes, void* argument, Combine combine,
                 const std::source_location& where) {
  if ((lanes & Bit(running_->lane)) == 0) {
    Fail("lane " + std::to_string(running_->lane) +
         " does not name itself at " + PlaceName(where));
  }
  running_->state = State::kAtMeeting;
  running_->where = where;
  running_->lanes = lanes;
  running_->argument = argument;
  running_->combine = combine;
  running_->warp->arrived |= Bit(running_->lane);
  TryReleaseMeeting(running_->warp, lanes);
  Suspend();
}

void Block::TryReleaseMeeting(Warp* warp, unsigned lanes) {
  const unsigned awaited = lanes & warp->live;
  if (awaited == 0 || (warp->arrived & awaited) != awaited) return;
  void* arguments[kWarpSize] = {};
  Combine combine = nullptr;
  bool first = true;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((awaited & Bit(lane)) == 0) continue;
    const Thread& thread = warp->threads[lane];
    if (first) combine = thread.combine;
    first = false;
    if (thread.lanes != lanes || thread.combine != combine) {
      Fail("lanes meet in different operations: " + DescribeWaiting());
    }
    arguments[lane] = thread.argument;
  }
  if (combine != nullptr) combine(arguments);
  warp->arrived &= ~awaited;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((awaited & Bit(lane)) != 0) MakeReady(&warp->threads[lane]);
  }
}

// Ends every thread that is in the middle of the kernel, so that its
// destructors run and its stack is clean for the next.
void Block::UnwindAll() {
  unwinding_ = true;
  for (Thread& thread : threads_) {
    if (thread.fiber.is_running()) RunThread(&thread);
  }
}

int Block::lane() const { return running_->lane; }

std::shared_ptr<void>& Block::storage() { return running_->storage; }

void Block::Fail(const std::string& what) const {
  throw std::runtime_error("block (" + std::to_string(index_.x) + ", " +
                           std::to_string(index_.y) + ", " +
                           std::to_string(index_.z) + "): " + what);
}

std::string Block::DescribeWaiting() const {
  std::map<std::string, int> counts;
  for (const Thread& thread : threads_) {
    if (thread.state == State::kAtBarrier) {
      ++counts["__syncthreads at " + PlaceName(thread.where)];
    } else if (thread.state == State::kAtMeeting) {
      ++counts["a meeting of their warp at " + PlaceName(thread.where)];
    }
  }
  std::string text = "of " + std::to_string(live_) + " live threads";
  for (const auto& [place, count] : counts) {
    text += ", " + std::to_string(count) + " wait in " + place;
  }
  return text;
}

void SyncBlock(const std::source_location& where) {
  current_block->Sync(where);
}

void MeetLanes(unsigned lanes, void* argument, Combine combine,
               const std::source_location& where) {
  current_block->Meet(lanes, argument, combine, where);
}

int Lane() { return current_block->lane(); }

void RequireAligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    current_block->Fail("a misaligned access of " + std::to_string(bytes) +
                        " bytes");
  }
}

void* DynamicShared() { return current_block->shared(); }

std::shared_ptr<void>& ThreadStorage() { return current_block->storage(); }

}  // namespace skrull::exec::sim
