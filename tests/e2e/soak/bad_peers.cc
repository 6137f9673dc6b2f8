#include "skrull/tests/e2e/soak/bad_peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace skrull::testing {
namespace {

constexpr int kPollMillis = 20;

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int ConnectTo(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail("socket");
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    ::close(fd);
    Fail("connect " + address);
  }
  return fd;
}

// Passes on what there is to read, at most a buffer; false at the end of the
// stream or if it broke.
bool PassOn(int from, int to) {
  char buffer[65536];
  const ssize_t size = ::read(from, buffer, sizeof buffer);
  if (size <= 0) return false;
  for (ssize_t sent = 0; sent < size;) {
    const ssize_t part = ::send(to, buffer + sent,
                                static_cast<size_t>(size - sent), MSG_NOSIGNAL);
    if (part <= 0) return false;
    sent += part;
  }
  return true;
}

// True if the peer has closed; what it sent before that is read.
bool PeerClosed(int fd) {
  char buffer[65536];
  while (true) {
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (size > 0) continue;
    return size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

}  // namespace

Relay::Relay(const std::string& target) : target_(target) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  if (listener_ < 0 ||
      ::bind(listener_, reinterpret_cast<sockaddr*>(&own), size) != 0 ||
      ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    Fail("listen");
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

Relay::~Relay() {
  thread_ = std::jthread();
  for (const Pair& pair : pairs_) {
    ::close(pair.client);
    ::close(pair.target);
  }
  ::close(listener_);
}

bool Relay::Abandoned() const {
  for (const Pair& pair : pairs_) {
    if (!PeerClosed(pair.target)) return false;
  }
  return true;
}

void Relay::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<pollfd> waits = {{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      waits.push_back({pair.client, POLLIN, 0});
      waits.push_back({pair.target, POLLIN, 0});
    }
    if (::poll(waits.data(), waits.size(), kPollMillis) <= 0) continue;
    for (size_t i = pairs_.size(); i-- > 0;) {
      const Pair pair = pairs_[i];
      bool open = true;
      if (waits[1 + 2 * i].revents != 0)
        open = PassOn(pair.client, pair.target);
      if (open && waits[2 + 2 * i].revents != 0) {
        open = PassOn(pair.target, pair.client);
      }
      if (open) continue;
      ::close(pair.client);
      ::close(pair.target);
      pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
    }
    if (waits[0].revents != 0) Accept();
  }
}

void Relay::Accept() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  try {
    pairs_.push_back({client, ConnectTo(target_)});
  } catch (const std::runtime_error&) {
    ::close(client);  // the target is going away
  }
}

SilentSocket::SilentSocket(const std::string& address)
    : fd_(ConnectTo(address)) {}

SilentSocket::~SilentSocket() { ::close(fd_); }

bool SilentSocket::Closed() { return PeerClosed(fd_); }

}  // namespace skrull::testing
