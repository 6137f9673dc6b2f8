// What the daemon tells a service manager, over a socket of the test's own.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

// The manager's end, as `name` in the form of NOTIFY_SOCKET, which it sets.
class Manager {
 public:
  explicit Manager(const std::string& name)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    REQUIRE(name.size() < sizeof address.sun_path);
    std::copy(name.begin(), name.end(), address.sun_path);
    if (name[0] == '@') address.sun_path[0] = '\0';
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                          name.size())) == 0);
    REQUIRE(::setenv("NOTIFY_SOCKET", name.c_str(), 1) == 0);
  }
  ~Manager() {
    ::unsetenv("NOTIFY_SOCKET");
    ::close(socket_);
  }

  // The next message; "" when none comes within a minute, or, if `ended`, when
  // there is none.
  std::string Next(bool ended = false) {
    pollfd poll = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, ended ? 0 : 60'000) != 1) return "";
    char text[256];
    const ssize_t size = ::recv(socket_, text, sizeof text, 0);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  const int socket_;
};

TEST_CASE("Service manager: hears when calls are taken, and when no longer",
          "[server][service]") {
  TempDir directory;
  for (const std::string& name :
       {(directory.path() / "notify").string(),
        "@skrull-test-" + std::to_string(::getpid())}) {
    INFO(name);
    Manager manager(name);
    Daemon daemon;
    CHECK(manager.Next() == "READY=1");
    daemon.Terminate();
    CHECK(manager.Next() == "STOPPING=1");
    CHECK(daemon.Wait() == 0);
    CHECK(manager.Next(/*ended=*/true).empty());
  }
}

TEST_CASE("Service manager: hears nothing of a daemon that cannot start",
          "[server][service]") {
  TempDir directory;
  Manager manager((directory.path() / "notify").string());
  Process process({DaemonPath(), "--listen_address=127.0.0.1:0",
                   "--metrics_address=127.0.0.1:0",
                   "--store=sqlite:" + (directory.path() / "no/db").string()});
  CHECK(process.Wait() == 1);
  CHECK(manager.Next(/*ended=*/true).empty());
}

TEST_CASE(
    "Service manager: one that cannot be told is named, and is no reason "
    "to stop",
    "[server][service]") {
  TempDir directory;
  for (const std::string& name :
       {(directory.path() / "nobody").string(), std::string("vsock:2:1234"),
        "/" + std::string(200, 'x')}) {
    INFO(name);
    REQUIRE(::setenv("NOTIFY_SOCKET", name.c_str(), 1) == 0);
    Daemon daemon;
    ::unsetenv("NOTIFY_SOCKET");
    daemon.Terminate();
    CHECK(daemon.Wait() == 0);
    CHECK_THAT(daemon.Output(),
               Catch::Contains("NOTIFY_SOCKET is no socket: " + name) ||
                   Catch::Contains("service manager at " + name + ": No such"));
  }
}

}  // namespace
}  // namespace skrull::testing
