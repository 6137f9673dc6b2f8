#include "skrull/server/auth/reloader.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"

namespace skrull {

Reloader::Reloader(std::vector<std::unique_ptr<WatchedFiles>> files,
                   const Clock* clock, const Logger* logger)
    : files_(std::move(files)),
      logger_(logger),
      alarm_(clock, [this](Alarm::Time now) { return PollAll(now); }) {
  if (!files_.empty()) alarm_.Set(clock->MonotonicNow() + kInterval);
}

Alarm::Time Reloader::PollAll(Alarm::Time now) {
  for (const auto& files : files_) {
    const std::optional<absl::Status> loaded = files->Poll();
    if (!loaded) continue;
    const std::string names = absl::StrJoin(files->paths(), ",");
    if (loaded->ok()) {
      logger_->Info("reloaded", {{"files", names}});
    } else {
      logger_->Error("reload_refused",
                     {{"files", names},
                      {"reason", std::string(loaded->message())},
                      {"in_use", "the old ones"}});
    }
  }
  return now + kInterval;
}

}  // namespace skrull
