#include "skrull/server/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace skrull {
namespace {

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4 = {};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6 = {};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// HOST, HOST:PORT, [HOST] or [HOST]:PORT.
bool IsLoopbackEndpoint(const std::string& endpoint) {
  if (endpoint.starts_with('[')) {
    const size_t end = endpoint.find(']');
    return end != std::string::npos &&
           (end + 1 == endpoint.size() || endpoint[end + 1] == ':') &&
           IsLoopbackHost(endpoint.substr(1, end - 1));
  }
  const size_t colon = endpoint.find(':');
  // A second colon makes it an IPv6 address without a port.
  if (colon != endpoint.rfind(':')) return IsLoopbackHost(endpoint);
  return IsLoopbackHost(endpoint.substr(0, colon));
}

}  // namespace

bool IsLocalAddress(const std::string& address) {
  if (address.starts_with("unix:") || address.starts_with("unix-abstract:")) {
    return true;
  }
  size_t begin = 0;
  for (const std::string scheme : {"ipv4:", "ipv6:"}) {
    if (address.starts_with(scheme)) begin = scheme.size();
  }
  while (true) {
    const size_t comma = address.find(',', begin);
    const size_t length = comma == std::string::npos ? comma : comma - begin;
    if (!IsLoopbackEndpoint(address.substr(begin, length))) return false;
    if (comma == std::string::npos) return true;
    begin = comma + 1;
  }
}

}  // namespace skrull
