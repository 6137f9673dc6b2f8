#include "skrull/cli/interrupt.h"

namespace skrull::cli {
namespace {

// All that a signal handler may write.
volatile std::sig_atomic_t interrupted = 0;

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  // Calls go on; SA_RESETHAND: the next one is as it was by default.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &before_);
}

InterruptGuard::~InterruptGuard() { ::sigaction(SIGINT, &before_, nullptr); }

bool InterruptGuard::Interrupted() const { return interrupted != 0; }

}  // namespace skrull::cli
