// The terminal as a screen that is drawn again and again.
#ifndef SKRULL_CLIENT_CLI_TERMINAL_H_
#define SKRULL_CLIENT_CLI_TERMINAL_H_

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <string>
#include <vector>

namespace skrull::cli {

// From its construction to its destruction the standard output shows a screen
// of its own (the alternate screen) without a cursor, keys of the standard
// input arrive one by one and unseen, and SIGINT, SIGTERM, SIGHUP and SIGWINCH
// come from Wait() and end nothing. The destructor brings back all as it was.
//
// Not thread-safe. One at a time. Threads that are started meanwhile inherit
// the blocked signals, as they must: make it before any other thread.
class Terminal {
 public:
  // REQUIRES: OutputIsTerminal().
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int columns;
    int rows;
  };
  // As it is now; 80 x 24 where the terminal does not say.
  Size size() const;

  // Shows the lines from the top; they must fit size() and hold nothing that
  // moves the cursor. False if the terminal is gone.
  bool Draw(const std::vector<std::string>& lines);

  struct Event {
    enum class Kind {
      kTimeout,
      kResize,
      kStop,  // a signal that asks to end, or the end of the input
      kKey,
    };
    Kind kind = Kind::kTimeout;
    char key = '\0';
  };
  // The next event; kTimeout after `wait`.
  Event Wait(std::chrono::milliseconds wait);

 private:
  sigset_t mask_before_ = {};
  int signals_ = -1;  // file descriptor
  bool has_keys_ = false;
  termios keys_before_ = {};
};

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_TERMINAL_H_
