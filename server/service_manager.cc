#include "skrull/server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <system_error>

namespace skrull {

absl::Status NotifyServiceManager(const std::string& state) {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  const std::string name = variable == nullptr ? "" : variable;
  if (name.empty()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if ((name[0] != '/' && name[0] != '@') ||
      name.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError("NOTIFY_SOCKET is no socket: " + name);
  }
  std::copy(name.begin(), name.end(), address.sun_path);
  // "@" stands for the zero that starts a name outside the file system.
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());

  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool sent =
      socket >= 0 &&
      ::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), size) >= 0;
  const int reason = errno;
  if (socket >= 0) ::close(socket);
  if (sent) return absl::OkStatus();
  return absl::UnavailableError("cannot notify the service manager at " + name +
                                ": " + std::generic_category().message(reason));
}

}  // namespace skrull
