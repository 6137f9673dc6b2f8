// Ctrl-C as something a loop asks for.
#ifndef SKRULL_CLIENT_CLI_INTERRUPT_H_
#define SKRULL_CLIENT_CLI_INTERRUPT_H_

#include <csignal>

namespace skrull::cli {

// While one exists, the first SIGINT only makes Interrupted() true; the next
// ends the process as ever. One at a time; not thread-safe.
class InterruptGuard {
 public:
  InterruptGuard();
  // Restores what SIGINT did before.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool Interrupted() const;

 private:
  struct sigaction before_ = {};
};

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_INTERRUPT_H_
