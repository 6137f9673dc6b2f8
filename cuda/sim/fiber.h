// A fiber, and what the sanitizers must be told when it runs.
#ifndef SKRULL_CUDA_SIM_FIBER_H_
#define SKRULL_CUDA_SIM_FIBER_H_

#include <cstddef>
#include <functional>

#include "boost/context/detail/fcontext.hpp"

namespace skrull::exec::sim {

// Runs a function piece by piece on a stack of its own. Resume and Suspend are
// called on one OS thread. Does not end what has not ended: its owner does,
// before it is destroyed.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Nothing runs yet. `stack` has `bytes`; it and `body` outlive the fiber's
  // run, and `body` does not throw.
  void Start(char* stack, size_t bytes, const std::function<void()>* body);

  // Runs until the next Suspend or the end.
  void Resume();
  // Called by the body: goes back to who resumed it.
  void Suspend();

  // Between Start and the end of the body.
  bool is_running() const { return context_ != nullptr; }

 private:
  using Context = boost::context::detail::fcontext_t;

  static void Enter(boost::context::detail::transfer_t from);

  const std::function<void()>* body_ = nullptr;
  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  Context context_ = nullptr;  // where it goes on; null: nowhere
  Context resumer_ = nullptr;  // while it runs
  // AddressSanitizer's: the stack of who resumes, and what it keeps of the
  // stacks that are left.
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
  void* resumer_fake_stack_ = nullptr;
  void* fake_stack_ = nullptr;
  // ThreadSanitizer's.
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
  [[maybe_unused]] void* tsan_resumer_ = nullptr;
};

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_FIBER_H_
