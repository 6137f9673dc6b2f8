// Asks several daemons for their status again and again, and tells how fast
// their counts grow.
#ifndef SKRULL_CLIENT_CLI_DAEMON_WATCH_H_
#define SKRULL_CLIENT_CLI_DAEMON_WATCH_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/client/daemon_status.h"
#include "skrull/client/planner_client.h"

namespace skrull::cli {

// Growth of a daemon's counts, per second of its own clock.
struct DaemonRates {
  double plans = 0;
  double refusals = 0;
  double reports = 0;
  double out_of_memory = 0;
  // Plans of each job that both answers name, in the same generation.
  std::map<std::string, double> job_plans = {};

  friend bool operator==(const DaemonRates&, const DaemonRates&) = default;
};

// nullopt if the daemon was restarted between the two, or its clock did not
// advance.
std::optional<DaemonRates> RatesBetween(const DaemonStatus& before,
                                        const DaemonStatus& after);

// What one daemon answered last.
struct DaemonSample {
  std::string address;
  absl::StatusOr<DaemonStatus> status;
  std::optional<DaemonRates> rates;  // against the answer before this one
};

// Not thread-safe; asks on threads of its own.
class DaemonWatch {
 public:
  struct Daemon {
    std::string address;
    std::unique_ptr<PlannerClient> client;
  };
  // `max_jobs` and `max_plans` as of PlannerClient::GetStatus.
  DaemonWatch(std::vector<Daemon> daemons, int32_t max_jobs, int32_t max_plans);
  // Waits for the calls that are under way: at most their clients' timeout.
  ~DaemonWatch();

  // Asks every daemon, side by side. REQUIRES: no round is under way.
  void StartRound();
  // Waits for the round's answers at most that long; true once all are there,
  // and while no round is under way.
  bool WaitForRound(std::chrono::milliseconds wait);
  // The answers of the round, in the order of the daemons; ends it. REQUIRES:
  // WaitForRound() was true.
  std::vector<DaemonSample> TakeRound();

 private:
  struct Watched {
    Daemon daemon;
    std::optional<DaemonStatus> before;
    std::future<absl::StatusOr<DaemonStatus>> answer;
  };

  const int32_t max_jobs_;
  const int32_t max_plans_;
  std::vector<Watched> watched_;
};

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_DAEMON_WATCH_H_
