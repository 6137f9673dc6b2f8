#include "skrull/server/plan_client.h"

#include "absl/strings/str_cat.h"

namespace skrull {

std::string ClientOf(const PlanOrigin& origin, const std::string& job) {
  // The letters keep a job and a subject of the same name apart.
  if (!origin.who.subject.empty())
    return absl::StrCat("s/", origin.who.subject);
  if (!job.empty()) return absl::StrCat("j/", job);
  return absl::StrCat("p/", origin.peer);
}

std::string ShareOf(const PlanOrigin& origin, const std::string& job) {
  // No job has a space in its name, nor has a subject.
  if (origin.who.subject.empty()) return ClientOf(origin, job);
  return absl::StrCat(ClientOf(origin, job), " ", job);
}

std::string PeerHost(const std::string& peer) {
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port == scheme) return peer;
  std::string host = peer.substr(scheme + 1, port - scheme - 1);
  // gRPC escapes the brackets of IPv6 in some versions.
  const auto strip = [&host](const std::string& open,
                             const std::string& close) {
    if (host.size() >= open.size() + close.size() && host.starts_with(open) &&
        host.ends_with(close)) {
      host = host.substr(open.size(), host.size() - open.size() - close.size());
    }
  };
  strip("[", "]");
  strip("%5B", "%5D");
  return host;
}

}  // namespace skrull
