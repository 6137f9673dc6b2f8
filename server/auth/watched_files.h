// Files that are read together, and read again when they change.
//
// Nothing tells when a writer is done, so changed files are read only once they
// looked the same twice in a row, and were the same after reading: files that
// are being written, or of which some are still to follow, are not half read.
// What is handed over may still be wrong, and is judged by who gets it.
//
// A file replaced by renaming, or behind a symbolic link that was switched, has
// changed, too.
#ifndef SKRULL_SERVER_AUTH_WATCHED_FILES_H_
#define SKRULL_SERVER_AUTH_WATCHED_FILES_H_

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skrull {

// Not thread-safe.
class WatchedFiles {
 public:
  // Largest file that is read, bytes.
  static constexpr int64_t kMaxFileBytes = int64_t{16} << 20;

  // Gets the contents in the order of the paths. An error means that they
  // cannot be used.
  using Use =
      std::function<absl::Status(const std::vector<std::string>& contents)>;

  WatchedFiles(std::vector<std::string> paths, Use use);

  const std::vector<std::string>& paths() const { return paths_; }

  // Reads the files and hands them over, whatever they look like. Errors:
  // INVALID_ARGUMENT naming a file that cannot be read, and why; those of Use.
  absl::Status Load();

  // Looks at the files once: what Load returned, if they changed since the last
  // Load and stood still since the last Poll; else nullopt. Files that could
  // not be used are not tried again before they change. Cheap when nothing
  // changed: one stat a file.
  std::optional<absl::Status> Poll();

 private:
  // What tells one state of a file from another.
  struct Look {
    int error = 0;  // errno; 0 = the file is there
    dev_t device = 0;
    ino_t inode = 0;
    int64_t size = 0;
    int64_t changed_nanos = 0;  // of content or attributes, by the system

    friend auto operator<=>(const Look&, const Look&) = default;
  };

  std::vector<Look> LookAtAll() const;
  absl::StatusOr<std::vector<std::string>> ReadAll() const;

  const std::vector<std::string> paths_;
  const Use use_;
  std::vector<Look> loaded_;  // before the last Load
  std::vector<Look> seen_;    // by the last Poll
};

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_WATCHED_FILES_H_
