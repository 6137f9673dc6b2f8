// TCP sockets with deadlines. Nothing here blocks past its deadline, and
// nothing raises SIGPIPE.
#ifndef SKRULL_CUDA_HOST_SOCKET_H_
#define SKRULL_CUDA_HOST_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "skrull/cuda/status.h"

namespace skrull::exec {

using SteadyTime = std::chrono::steady_clock::time_point;

// Owns a file descriptor, or none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// "Connection refused" and so on, of an errno.
std::string ErrorText(int error);

// Milliseconds for poll() until then: at least 0, rounded up.
int PollMilliseconds(SteadyTime deadline);

struct Listener {
  Fd fd;
  std::string address;  // "127.0.0.1:40123" or "[::1]:40123": what others dial
};

// Listens on a free port of `host`, a name or a numeric address of this
// machine. Errors: COMM_FAILED naming the host.
Result<Listener> Listen(const std::string& host);

// The next connection, ready for use as Connect's; not open if there is none at
// the moment.
Fd Accept(const Listener& listener);

// A non-blocking connection to Listener::address. Tries again while it is
// refused: the listener may be late. Errors: INVALID_ARGUMENT for another form
// of address; DEADLINE_EXCEEDED, with the last cause.
Result<Fd> Connect(const std::string& address, SteadyTime deadline);

// Sends or receives exactly `bytes`. Errors: COMM_FAILED if the connection
// ends; DEADLINE_EXCEEDED.
Status SendAll(const Fd& fd, const void* data, size_t bytes,
               SteadyTime deadline);
Status ReceiveAll(const Fd& fd, void* data, size_t bytes, SteadyTime deadline);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_SOCKET_H_
