// Lengths of real documents, in tokens, for `skrullctl lengths`.
#ifndef SKRULL_CLIENT_CLI_DOCUMENTS_H_
#define SKRULL_CLIENT_CLI_DOCUMENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skrull::cli {

struct DocumentLengths {
  std::vector<int64_t> lengths;  // tokens, each >= 1
  int64_t skipped = 0;           // empty documents and binary files
};

// Called with the number of documents read so far.
using ReadProgress = std::function<void(int64_t)>;

// Tokens of a text of `bytes` bytes: bytes / bytes_per_token rounded down, at
// least 1. REQUIRES: bytes >= 1, bytes_per_token > 0.
int64_t TokensOfBytes(int64_t bytes, double bytes_per_token);

// One length for each text file below `directory`, in byte order of their
// paths. Entries whose names begin with a dot, symbolic links, empty files and
// files that hold a NUL byte are skipped. Errors: what cannot be read, by name.
absl::StatusOr<DocumentLengths> LengthsOfDirectory(
    const std::string& directory, double bytes_per_token,
    const ReadProgress& progress);

// One length for each JSON object of `text`, in order, from its member `field`:
// a number is tokens (an integer, 1 .. 2^31 - 1), a string is text, measured in
// bytes of UTF-8. An empty `field` means `length`, else `text`. Blank lines and
// empty strings are skipped. Errors: INVALID_ARGUMENT with `name`, line and
// what is wrong.
absl::StatusOr<DocumentLengths> LengthsOfJsonLines(
    const std::string& text, const std::string& name, const std::string& field,
    double bytes_per_token, const ReadProgress& progress);

// Permutes `lengths` by Fisher and Yates, from the last element down, with the
// numbers of splitmix64 seeded with `seed`, modulo the elements left: the same
// order everywhere.
void Shuffle(uint64_t seed, std::vector<int64_t>* lengths);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_DOCUMENTS_H_
