// How the client shows who it is, and whom it trusts. Not for users of the
// client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_CREDENTIALS_H_
#define SKRULL_CLIENT_CPP_INTERNAL_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/planner_client.h"

namespace skrull::client_internal {

// Errors: INVALID_ARGUMENT naming the option: options that need each other, a
// token given twice, a token over plaintext to an address beyond this machine.
absl::Status CheckCredentialOptions(const ClientOptions& options);

// TLS with the files that `options` name; plaintext without them. Errors:
// INVALID_ARGUMENT naming the option whose file cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const ClientOptions& options);

// The token of the moment. Thread-safe.
class TokenSource {
 public:
  // Reads ClientOptions::token_file, if there is one. Errors: INVALID_ARGUMENT
  // naming the option, without its value, for a file that cannot be read or
  // what is no token.
  static absl::StatusOr<std::unique_ptr<TokenSource>> Create(
      const ClientOptions& options);

  // Empty = none. Reads the file again when it changed; while it holds no
  // token, the one it held before stands.
  std::string Current();

 private:
  explicit TokenSource(std::string file) : file_(std::move(file)) {}

  // Reads the file if it changed. Errors: as Create. REQUIRES: mutex_ is held.
  absl::Status Refresh();

  const std::string file_;  // empty = the token never changes
  std::mutex mutex_;
  std::string token_;                  // mutex_ guards it,
  std::optional<struct stat> looked_;  // and this: the file when it was read
};

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_CREDENTIALS_H_
