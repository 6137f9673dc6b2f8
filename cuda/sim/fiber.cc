#include "skrull/cuda/sim/fiber.h"

#include <cassert>
#include <memory>
#include <utility>

#include "boost/context/preallocated.hpp"
#include "boost/context/stack_context.hpp"
#include "skrull/cuda/sim/sanitizers.h"

namespace skrull::exec::sim {
namespace {

namespace context = boost::context;

// The stack is the pool's: there is nothing to allocate or free.
struct BorrowedStack {
  void deallocate(context::stack_context&) noexcept {}
};

}  // namespace

Fiber::~Fiber() { assert(!is_running()); }

void Fiber::Start(char* stack, size_t bytes,
                  const std::function<void()>* body) {
  stack_ = stack;
  stack_bytes_ = bytes;
  context::stack_context area;
  area.sp = stack + bytes;  // stacks grow downwards
  area.size = bytes;
  fiber_ = context::fiber(
      std::allocator_arg, context::preallocated(area.sp, area.size, area),
      BorrowedStack(), [this, body](context::fiber&& resumer) {
        EnterStack(nullptr, &resumer_stack_, &resumer_stack_bytes_);
        resumer_ = std::move(resumer);
        (*body)();
        LeaveStack(nullptr, resumer_stack_, resumer_stack_bytes_);
        return std::move(resumer_);
      });
}

void Fiber::Resume() {
  LeaveStack(&resumer_fake_stack_, stack_, stack_bytes_);
  fiber_ = std::move(fiber_).resume();
  EnterStack(resumer_fake_stack_, nullptr, nullptr);
}

void Fiber::Suspend() {
  LeaveStack(&fake_stack_, resumer_stack_, resumer_stack_bytes_);
  resumer_ = std::move(resumer_).resume();
  EnterStack(fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
}

}  // namespace skrull::exec::sim
