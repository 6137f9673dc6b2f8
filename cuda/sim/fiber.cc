#include "skrull/cuda/sim/fiber.h"

#include <cassert>

#include "skrull/cuda/sim/sanitizers.h"

namespace skrull::exec::sim {

namespace context = boost::context::detail;

Fiber::~Fiber() {
  assert(!is_running());
  SKRULL_SIM_TSAN_ONLY(if (tsan_fiber_ != nullptr)
                           __tsan_destroy_fiber(tsan_fiber_));
}

void Fiber::Start(char* stack, size_t bytes,
                  const std::function<void()>* body) {
  body_ = body;
  stack_ = stack;
  stack_bytes_ = bytes;
  // Fibers end by a switch, not by a return: what the last one's frames left
  // forbidden would else be in the way of this one's.
  AllowBytes(stack, bytes);
  // Stacks grow downwards.
  context_ = context::make_fcontext(stack + bytes, bytes, &Fiber::Enter);
  SKRULL_SIM_TSAN_ONLY(if (tsan_fiber_ == nullptr) tsan_fiber_ =
                           __tsan_create_fiber(0));
}

SKRULL_SIM_UNLISTED void Fiber::Resume() {
  LeaveStack(&resumer_fake_stack_, stack_, stack_bytes_);
  SKRULL_SIM_TSAN_ONLY(tsan_resumer_ = __tsan_get_current_fiber());
  SKRULL_SIM_TSAN_ONLY(__tsan_switch_to_fiber(tsan_fiber_, 0));
  context_ = context::jump_fcontext(context_, this).fctx;
  EnterStack(resumer_fake_stack_, nullptr, nullptr);
  if (body_ == nullptr) context_ = nullptr;
}

SKRULL_SIM_UNLISTED void Fiber::Suspend() {
  LeaveStack(&fake_stack_, resumer_stack_, resumer_stack_bytes_);
  SKRULL_SIM_TSAN_ONLY(__tsan_switch_to_fiber(tsan_resumer_, 0));
  resumer_ = context::jump_fcontext(resumer_, nullptr).fctx;
  EnterStack(fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
}

// The whole life of a fiber, which ends in the last switch.
SKRULL_SIM_UNLISTED void Fiber::Enter(context::transfer_t from) {
  auto* self = static_cast<Fiber*>(from.data);
  EnterStack(nullptr, &self->resumer_stack_, &self->resumer_stack_bytes_);
  self->resumer_ = from.fctx;
  (*self->body_)();
  self->body_ = nullptr;
  LeaveStack(nullptr, self->resumer_stack_, self->resumer_stack_bytes_);
  SKRULL_SIM_TSAN_ONLY(__tsan_switch_to_fiber(self->tsan_resumer_, 0));
  context::jump_fcontext(self->resumer_, nullptr);
}

}  // namespace skrull::exec::sim
