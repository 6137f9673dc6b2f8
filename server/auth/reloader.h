// Looks after files that may change while the daemon runs.
#ifndef SKRULL_SERVER_AUTH_RELOADER_H_
#define SKRULL_SERVER_AUTH_RELOADER_H_

#include <chrono>
#include <memory>
#include <vector>

#include "skrull/server/alarm.h"
#include "skrull/server/auth/watched_files.h"
#include "skrull/server/clock.h"
#include "skrull/server/log.h"

namespace skrull {

// Polls the files on a thread of its own for as long as it lives, and logs what
// came of each change.
class Reloader {
 public:
  // A change takes effect after two to three of these; one stat a file each
  // time is nothing even on a network file system.
  static constexpr std::chrono::milliseconds kInterval{500};

  // REQUIRES: every element was loaded. `clock` and `logger` must outlive the
  // object.
  Reloader(std::vector<std::unique_ptr<WatchedFiles>> files, const Clock* clock,
           const Logger* logger);

 private:
  Alarm::Time PollAll(Alarm::Time now);

  // After construction touched by the alarm's thread alone.
  const std::vector<std::unique_ptr<WatchedFiles>> files_;
  const Logger* const logger_;
  Alarm alarm_;  // last: its thread uses the rest
};

}  // namespace skrull

#endif  // SKRULL_SERVER_AUTH_RELOADER_H_
