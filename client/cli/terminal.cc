#include "skrull/cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace skrull::cli {
namespace {

// Control sequences of ECMA-48 and of xterm, which every terminal of today
// understands.
constexpr char kEnter[] = "\033[?1049h\033[?25l";  // other screen, no cursor
constexpr char kLeave[] = "\033[?25h\033[?1049l";
constexpr char kHome[] = "\033[H";
constexpr char kClearLine[] = "\033[K";
constexpr char kClearBelow[] = "\033[J";

bool WriteAll(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t count =
        ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

Terminal::Terminal() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
    sigaddset(&mask, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &mask, &mask_before_);
  signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  has_keys_ = ::tcgetattr(STDIN_FILENO, &keys_before_) == 0;
  if (has_keys_) {
    termios keys = keys_before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    // A stopped program could not bring the screen back.
    keys.c_cc[VSUSP] = _POSIX_VDISABLE;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  WriteAll(kEnter);
}

Terminal::~Terminal() {
  WriteAll(kLeave);
  if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &keys_before_);
  // Takes what came meanwhile, so that unblocking does not deliver it.
  signalfd_siginfo info;
  while (signals_ >= 0 && ::read(signals_, &info, sizeof info) > 0) {
  }
  if (signals_ >= 0) ::close(signals_);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

Terminal::Size Terminal::size() const {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 ||
      size.ws_row == 0) {
    return {.columns = 80, .rows = 24};
  }
  return {.columns = size.ws_col, .rows = size.ws_row};
}

bool Terminal::Draw(const std::vector<std::string>& lines) {
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "\r\n", lines[i], kClearLine);
  }
  return WriteAll(text + kClearBelow);
}

Terminal::Event Terminal::Wait(std::chrono::milliseconds wait) {
  using Kind = Event::Kind;
  pollfd files[2] = {{.fd = signals_, .events = POLLIN, .revents = 0},
                     {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  const nfds_t count = has_keys_ ? 2 : 1;
  if (::poll(files, count, static_cast<int>(wait.count())) <= 0) return {};
  signalfd_siginfo info = {};
  if (files[0].revents != 0 &&
      ::read(signals_, &info, sizeof info) == sizeof info) {
    return {.kind = info.ssi_signo == SIGWINCH ? Kind::kResize : Kind::kStop};
  }
  if (has_keys_ && files[1].revents != 0) {
    char key = '\0';
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got == 1) return {.kind = Kind::kKey, .key = key};
    if (got == 0 || errno != EINTR) return {.kind = Kind::kStop};
  }
  return {};
}

}  // namespace skrull::cli
