// Files in memory -> one archive.
#ifndef SKRULL_CLIENT_CLI_ARCHIVE_H_
#define SKRULL_CLIENT_CLI_ARCHIVE_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skrull::cli {

struct ArchivedFile {
  std::string name;  // relative path, with slashes
  std::string content;
};

// A gzipped tar file (POSIX ustar, with pax headers for what does not fit) of
// the files, in their order, all of the mode 0600 and of that time, without the
// names of a user. Errors: INTERNAL with the library's reason.
absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files,
                                  std::chrono::system_clock::time_point time);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_ARCHIVE_H_
