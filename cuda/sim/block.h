// One CUDA block on the CPU: a fiber a thread, which run in a random order from
// one barrier to the next.
#ifndef SKRULL_CUDA_SIM_BLOCK_H_
#define SKRULL_CUDA_SIM_BLOCK_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "skrull/cuda/sim/fiber.h"
#include "skrull/cuda/sim/shared_memory.h"
#include "skrull/cuda/sim/stacks.h"
#include "skrull/cuda/sim/thread.h"
#include "skrull/cuda/sim/vector_types.h"

namespace skrull::exec::sim {

// Runs blocks of one launch, one after another, on the calling OS thread.
//
// The random orders are of two kinds, for races of two kinds. In one, any ready
// thread is next: warps keep step, and neighbours come in any order. In the
// other one warp runs as far ahead as barriers let it, and then another: what a
// warp does too early shows, though the others would have been nearly done.
//
// Invariants: a live thread is ready, running, at the block's barrier or at a
// meeting of its warp; the first are those in ready_, and arrived_ counts the
// third. Nothing is ready while no thread can go on: that is a deadlock.
class Block {
 public:
  // `kernel` is called once by each thread. All outlive the block.
  Block(dim3 grid, dim3 size, int64_t shared_bytes,
        const std::function<void()>* kernel, Stacks* stacks);

  // Equal seeds give equal orders. Throws what a thread throws, and
  // std::runtime_error for a deadlock, for threads that meet in different
  // places, or for a write behind the shared memory; all other threads are then
  // unwound.
  void Run(uint3 index, uint64_t seed);

  // What follows is called by the running thread; thread.h has the contracts.
  void Sync(const std::source_location& where);
  void Meet(unsigned lanes, void* argument, Combine combine,
            const std::source_location& where);
  int lane() const;
  void* shared() { return shared_.data(); }
  std::shared_ptr<void>& storage();
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtMeeting, kDone };
  struct Warp;
  struct Thread {
    Fiber fiber;
    char* stack = nullptr;
    std::function<void()> body;
    uint3 index{};
    int lane = 0;
    Warp* warp = nullptr;
    State state = State::kReady;
    std::source_location where;     // of the barrier or meeting
    unsigned lanes = 0;             // that a meeting waits for
    void* argument = nullptr;       // of a meeting
    Combine combine = nullptr;      // of a meeting
    std::shared_ptr<void> storage;  // of the kernel's helpers
  };
  struct Warp {
    Thread* threads = nullptr;  // of lane 0
    unsigned live = 0;          // lanes that have not returned
    unsigned arrived = 0;       // lanes at a meeting
  };

  void RunToEnd();
  // Of the thread in ready_ that runs next. REQUIRES: there is one.
  size_t ChooseReady();
  void RunThread(Thread* thread);
  // Of the running thread.
  void Suspend();
  void Retire(Thread* thread);
  void MakeReady(Thread* thread);
  // Lets all go on if the last has come.
  void TryReleaseBarrier();
  void TryReleaseMeeting(Warp* warp, unsigned lanes);
  void UnwindAll();
  std::string DescribeWaiting() const;

  const dim3 grid_;
  const dim3 size_;
  uint3 index_{};
  SharedMemory shared_;
  std::minstd_rand random_;
  bool hurries_ = false;   // this block's order is of the second kind
  Warp* ahead_ = nullptr;  // and this warp is ahead

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> ready_;
  Thread* running_ = nullptr;
  int live_ = 0;
  int arrived_ = 0;
  bool unwinding_ = false;
  std::exception_ptr failure_;  // the first that left a thread
};

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_BLOCK_H_
