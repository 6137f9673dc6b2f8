// Fetches one page over HTTP.
#ifndef SKRULL_CLIENT_CLI_HTTP_GET_H_
#define SKRULL_CLIENT_CLI_HTTP_GET_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace skrull::cli {

// The body of `url` (http or https), asked for without any proxy and without
// following redirections. Errors: UNAVAILABLE naming the URL and the reason, or
// the HTTP status when it is not 200; RESOURCE_EXHAUSTED for a body of more
// than `max_bytes`; DEADLINE_EXCEEDED after `timeout`.
absl::StatusOr<std::string> HttpGet(const std::string& url,
                                    std::chrono::milliseconds timeout,
                                    size_t max_bytes);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_HTTP_GET_H_
