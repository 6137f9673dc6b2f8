// The address of an etcd store: where its cluster is, and where in it the keys.
#ifndef SKRULL_SERVER_ETCD_ETCD_URI_H_
#define SKRULL_SERVER_ETCD_ETCD_URI_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skrull {

struct EtcdLocation {
  // "HOST:PORT" of each member, at least one.
  std::vector<std::string> endpoints;
  // Of every key; starts and ends with a slash.
  std::string prefix;
};

// True for what starts with "etcd://".
bool IsEtcdUri(const std::string& uri);

// Reads etcd://HOST:PORT[,HOST:PORT...]/PREFIX, where PREFIX is made of
// [A-Za-z0-9._-] and single slashes inside; a slash at its end is dropped. The
// hosts may be names, IPv4 addresses or IPv6 addresses in brackets. Errors:
// INVALID_ARGUMENT naming what is wrong.
absl::StatusOr<EtcdLocation> ParseEtcdUri(const std::string& uri);

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_URI_H_
