#include "skrull/server/etcd/etcd_uri.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "skrull/planner/error.h"

namespace skrull {
namespace {

constexpr char kScheme[] = "etcd://";
constexpr size_t kMaxPrefixBytes = 128;

absl::Status UriError(const std::string& uri, const std::string& problem) {
  return FieldError("store",
                    absl::StrCat("\"", absl::CHexEscape(uri), "\": ", problem));
}

bool IsAlphanumeric(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c));
}

bool IsHost(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return std::all_of(host.begin() + 1, host.end() - 1, [](char c) {
      return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' ||
             c == '.';
    });
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return IsAlphanumeric(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsEndpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string digits = text.substr(colon + 1);
  int32_t port = 0;
  return IsHost(text.substr(0, colon)) &&
         digits.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(digits, &port) && port >= 1 && port <= 65535;
}

bool IsPrefix(const std::string& prefix) {
  if (prefix.size() > kMaxPrefixBytes) return false;
  const std::vector<std::string> parts = absl::StrSplit(prefix, '/');
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return IsAlphanumeric(c) || c == '.' || c == '-' || c == '_';
    });
  });
}

}  // namespace

bool IsEtcdUri(const std::string& uri) { return uri.rfind(kScheme, 0) == 0; }

absl::StatusOr<EtcdLocation> ParseEtcdUri(const std::string& uri) {
  if (!IsEtcdUri(uri)) {
    return UriError(uri, "is not etcd://HOST:PORT[,HOST:PORT...]/PREFIX");
  }
  const std::string rest = uri.substr(sizeof(kScheme) - 1);
  const size_t slash = rest.find('/');
  EtcdLocation location;
  for (const std::string& endpoint :
       std::vector<std::string>(absl::StrSplit(rest.substr(0, slash), ','))) {
    if (!IsEndpoint(endpoint)) {
      return UriError(uri, absl::StrCat("\"", absl::CHexEscape(endpoint),
                                        "\" is not HOST:PORT"));
    }
    location.endpoints.push_back(endpoint);
  }
  std::string prefix = slash == std::string::npos ? "" : rest.substr(slash + 1);
  if (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  if (!IsPrefix(prefix)) {
    return UriError(uri,
                    absl::StrCat("the prefix of the keys, after HOST:PORT/, "
                                 "must be 1 .. ",
                                 kMaxPrefixBytes,
                                 " of [A-Za-z0-9._-], with single slashes "
                                 "inside"));
  }
  location.prefix = absl::StrCat("/", prefix, "/");
  return location;
}

}  // namespace skrull
