// Which addresses reach this machine alone. The daemon and its clients ask the
// same question: where no one else listens in, encryption may be left out.
#ifndef SKRULL_SERVER_ADDRESS_H_
#define SKRULL_SERVER_ADDRESS_H_

#include <string>

namespace skrull {

// True for a Unix socket, and for localhost and numeric loopback addresses with
// any port, in the forms that skrulld listens on and that gRPC connects to:
// "127.0.0.1:7419", "[::1]:7419", "localhost:7419", "unix:/path",
// "ipv4:127.0.0.1:7419,127.0.0.2:7419". False for everything else: of a name
// that must be looked up, nothing is certain. Pure.
bool IsLocalAddress(const std::string& address);

}  // namespace skrull

#endif  // SKRULL_SERVER_ADDRESS_H_
