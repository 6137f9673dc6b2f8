// Tells the service manager that started this process how it is, as systemd's
// Type=notify expects: one datagram to the socket that NOTIFY_SOCKET names.
#ifndef SKRULL_SERVER_SERVICE_MANAGER_H_
#define SKRULL_SERVER_SERVICE_MANAGER_H_

#include <string>

#include "absl/status/status.h"

namespace skrull {

// Sends `state`, such as "READY=1" or "STOPPING=1", and does not wait. OK
// without sending where NOTIFY_SOCKET is unset or empty: nobody asked. Errors:
// INVALID_ARGUMENT naming a NOTIFY_SOCKET that is no socket's address;
// UNAVAILABLE naming it, with the system's reason, when it takes no message.
// Not thread-safe against changes of the environment.
absl::Status NotifyServiceManager(const std::string& state);

}  // namespace skrull

#endif  // SKRULL_SERVER_SERVICE_MANAGER_H_
