// Plans lists batch by batch for `skrullctl compare` and `simulate`, and what
// the two have in common on the command line.
#ifndef SKRULL_CLIENT_CLI_REPLAYER_H_
#define SKRULL_CLIENT_CLI_REPLAYER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/cli/interrupt.h"
#include "skrull/cli/io.h"
#include "skrull/cli/plan_source.h"
#include "skrull/cli/replay.h"

namespace CLI {
class App;
}

namespace skrull::cli {

struct ReplayFlags {
  ServerFlags server;
  bool offline = false;
  std::string format = "text";
  std::string progress = "auto";
};

// --server, --offline, --timeout, --format and --progress. `flags` must outlive
// the command.
void AddReplayOptions(CLI::App* command, ReplayFlags* flags);

// Shows progress over everything it is to plan, and stops at Ctrl-C. One at a
// time; not thread-safe.
class Replayer {
 public:
  // `flags` of which neither --server nor $SKRULL_SERVER names a daemon, or
  // with --offline: plans in this process. `total` is the batches of all calls
  // of Replay.
  Replayer(const ReplayFlags& flags, int64_t total);

  // Plans each batch under `policy`; empty = that of the spec. A refused batch
  // is an outcome like any other. Errors: CANCELLED after Ctrl-C; UNAVAILABLE
  // when the daemon cannot be reached or drains; INVALID_ARGUMENT for a spec or
  // an address.
  absl::StatusOr<std::vector<BatchOutcome>> Replay(
      const std::string& job_spec_text, const std::string& policy,
      std::span<const std::span<const int64_t>> batches);

  // Writes to the standard output, the progress out of the way. Errors:
  // INTERNAL if it cannot be written.
  absl::Status Write(const std::string& text);

  // The exit code after all went well, or after the error of one of the above,
  // of which it tells, and how far it came.
  int Finish(const absl::Status& status);

 private:
  ServerFlags server_;  // empty address = plan in this process
  const int64_t total_;
  int64_t done_ = 0;
  bool refused_ = false;
  InterruptGuard interrupt_;
  Progress progress_;
};

// What to write of an object with the same keys as the rows before it.
// `format` is "json" or "csv".
std::string DataRow(const nlohmann::ordered_json& row,
                    const std::string& format, bool first);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_REPLAYER_H_
