// The typed part of an error: what was wrong, for programs.
// skrull.v1.ErrorDetail as plain data.
#ifndef SKRULL_CLIENT_CPP_REFUSAL_H_
#define SKRULL_CLIENT_CPP_REFUSAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skrull {

struct RefusalDetail {
  // Upper-case constant, e.g. "SEQUENCE_TOO_LONG": see docs/errors.md.
  std::string reason = {};
  // Path of the request field at fault, e.g. "cost.seconds_per_flop".
  std::string field = {};
  // Indices in that field; at most 32 are listed.
  std::vector<int64_t> indices = {};
  // The limit that was broken.
  std::optional<int64_t> limit = {};
  // When to try again; nullopt = do not, before something changes.
  std::optional<double> retry_after_seconds = {};

  friend bool operator==(const RefusalDetail&, const RefusalDetail&) = default;
};

// The detail of an error of any client call; nullopt if it has none, as for an
// error of the connection.
std::optional<RefusalDetail> GetRefusalDetail(const absl::Status& status);

// The id of the request that failed, which is in the daemon's log; empty for an
// error of no request. The client ends messages with it: "(request ID)".
std::string GetRequestId(const absl::Status& status);

// The message without that end: equal requests have equal ones.
std::string MessageWithoutRequestId(const absl::Status& status);

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_REFUSAL_H_
