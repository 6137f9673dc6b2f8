#include "skrull/cuda/host/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

namespace skrull::exec {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetryPause{20};
constexpr int kBacklog = 1024;
// A machine that vanished is noticed after about 20 seconds, whether this side
// is silent or sending.
constexpr int kKeepIdleSeconds = 5;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepProbes = 3;
constexpr int kUserTimeoutMilliseconds = 20'000;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Errors: COMM_FAILED.
Result<AddressList> Resolve(const std::string& host, const std::string& port,
                            int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
      error != 0) {
    return Status(StatusCode::kCommFailed,
                  "cannot resolve \"" + host + "\": " + gai_strerror(error));
  }
  return AddressList(list, &freeaddrinfo);
}

void SetOption(int fd, int level, int name, int value) {
  // Best effort: without it the connection still works.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

void Configure(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMilliseconds);
}

// 0 once `events` are there, else an errno: ETIMEDOUT at the deadline.
int Await(int fd, short events, SteadyTime deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, PollMilliseconds(deadline));
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return errno;
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
  }
}

// 0 and the connection, or an errno.
int TryConnect(const addrinfo& to, SteadyTime deadline, Fd* connection) {
  Fd fd(socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
               to.ai_protocol));
  if (!fd.open()) return errno;
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (const int error = Await(fd.get(), POLLOUT, deadline); error != 0) {
      return error;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      return errno;
    }
    if (error != 0) return error;
  }
  Configure(fd.get());
  *connection = std::move(fd);
  return 0;
}

Status EndedError(int error) {
  return {StatusCode::kCommFailed,
          error == 0 ? "the connection was closed"
                     : "the connection broke: " + ErrorText(error)};
}

Status DeadlineError(const std::string& what) {
  return {StatusCode::kDeadlineExceeded, what};
}

// Moves all bytes with `move`, which is send or recv.
template <class Move>
Status MoveAll(int fd, short events, size_t bytes, SteadyTime deadline,
               const Move& move) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = move(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0) {
      return EndedError(0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const int error = Await(fd, events, deadline);
      if (error == ETIMEDOUT) return DeadlineError("the peer is silent");
      if (error != 0) return EndedError(error);
    } else if (errno != EINTR) {
      return EndedError(errno);
    }
  }
  return {};
}

}  // namespace

void Fd::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

int PollMilliseconds(SteadyTime deadline) {
  const auto left = std::chrono::ceil<milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

Result<Listener> Listen(const std::string& host) {
  Result<AddressList> list = Resolve(host, "0", AI_PASSIVE);
  if (!list.ok()) return list.status();
  int error = 0;
  for (const addrinfo* to = list->get(); to != nullptr; to = to->ai_next) {
    Fd fd(socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                 to->ai_protocol));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    char name[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (!fd.open() || bind(fd.get(), to->ai_addr, to->ai_addrlen) != 0 ||
        listen(fd.get(), kBacklog) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) !=
            0) {
      error = errno;
      continue;
    }
    if (getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, name,
                    sizeof(name), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      continue;
    }
    const std::string shown =
        to->ai_family == AF_INET6 ? "[" + std::string(name) + "]" : name;
    return Listener{std::move(fd), shown + ":" + port};
  }
  return Status(StatusCode::kCommFailed,
                "cannot listen on \"" + host + "\": " + ErrorText(error));
}

Fd Accept(const Listener& listener) {
  Fd fd(accept4(listener.fd.get(), nullptr, nullptr,
                SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.open()) Configure(fd.get());
  return fd;
}

Result<Fd> Connect(const std::string& address, SteadyTime deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidArgument("\"" + address + "\" is not host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  Result<AddressList> list = Resolve(host, address.substr(colon + 1), 0);
  if (!list.ok()) return list.status();
  while (true) {
    int error = 0;
    for (const addrinfo* to = list->get(); to != nullptr; to = to->ai_next) {
      Fd fd;
      error = TryConnect(*to, deadline, &fd);
      if (error == 0) return fd;
    }
    if (std::chrono::steady_clock::now() + kRetryPause >= deadline) {
      return DeadlineError("no connection to " + address + ": " +
                           ErrorText(error));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

Status SendAll(const Fd& fd, const void* data, size_t bytes,
               SteadyTime deadline) {
  return MoveAll(fd.get(), POLLOUT, bytes, deadline, [&](size_t done) {
    return send(fd.get(), static_cast<const char*>(data) + done, bytes - done,
                MSG_NOSIGNAL);
  });
}

Status ReceiveAll(const Fd& fd, void* data, size_t bytes, SteadyTime deadline) {
  return MoveAll(fd.get(), POLLIN, bytes, deadline, [&](size_t done) {
    return recv(fd.get(), static_cast<char*>(data) + done, bytes - done, 0);
  });
}

}  // namespace skrull::exec
