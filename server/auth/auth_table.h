// The callers a daemon knows, and how it knows them: an auth file, parsed.
//
//   # SUBJECT      ROLE    HOW
//   alice          owner   sha256:9f86d081...   # of her token
//   alice          owner   sha256:60303ae2...   # her next one
//   grafana        reader  sha256:fd61a03a...
//   spiffe://ml/x  owner   cert                 # by client certificate
//
// A token is looked up by its SHA-256. The file then holds nothing that lets
// anyone in, and the time a look-up takes tells of digests alone, which say
// nothing about tokens: no comparison ever touches a token. Digests carry no
// salt, as tokens are long random strings and not passwords.
//
// Pure; immutable, so safe to share between threads.
#ifndef SKRULL_SERVER_AUTH_AUTH_TABLE_H_
#define SKRULL_SERVER_AUTH_AUTH_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/server/auth/caller.h"

namespace skrull {

class AuthTable {
 public:
  // Shortest and longest token that is looked at, bytes. Below the first,
  // guessing is worth a try.
  static constexpr size_t kMinTokenBytes = 16;
  static constexpr size_t kMaxTokenBytes = 512;
  // Most entries of a file.
  static constexpr int64_t kMaxEntries = 100'000;

  // Reads the text of an auth file: lines of three words, blank lines, and
  // comments from a # that starts a word. A subject may have several lines, all
  // of one role. Errors: INVALID_ARGUMENT naming `file` and the line, without
  // quoting it, since someone may have put a token there: a line of another
  // form, an unknown role, a digest that is not 64 hexadecimal digits, a digest
  // given twice, a subject with two roles, no entry at all. O(n log n).
  static absl::StatusOr<AuthTable> Parse(const std::string& text,
                                         const std::string& file);

  // The caller with this token; nullopt if there is none.
  std::optional<Caller> FindToken(const std::string& token) const;

  // The caller that the first of `names` which has a `cert` line stands for.
  // REQUIRES: a certificate that was verified vouches for every name.
  std::optional<Caller> FindCertificate(
      const std::vector<std::string>& names) const;

  bool has_certificates() const { return !certificates_.empty(); }
  int64_t size() const {
    return static_cast<int64_t>(tokens_.size() + certificates_.size());
  }

 private:
  AuthTable() = default;

  std::map<std::string, Caller> tokens_;        // by SHA-256, hexadecimal
  std::map<std::string, Caller> certificates_;  // by subject
};

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_AUTH_TABLE_H_
