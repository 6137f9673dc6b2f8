// What a daemon is doing, as plain data, for people: what `skrullctl top`
// shows. Fields have the meaning, unit and range of those of the same name in
// proto/skrull/v1/status.proto. Strings come from the daemon as they are:
// escape them before they reach a terminal.
#ifndef SKRULL_CLIENT_CPP_DAEMON_STATUS_H_
#define SKRULL_CLIENT_CPP_DAEMON_STATUS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace skrull {

// One plan that was made.
struct DaemonPlan {
  std::string job = {};  // empty when it was planned from a spec alone
  int64_t step = 0;
  int32_t attempt = 0;
  std::string policy = {};  // name, e.g. "POLICY_SKRULL"
  std::chrono::system_clock::time_point time = {};
  double planning_seconds = 0;
  int64_t sequence_count = 0;
  int64_t token_count = 0;
  int64_t sharded_token_count = 0;
  int64_t micro_batch_count = 0;
  double predicted_seconds = 0;
  double lower_bound_seconds = 0;
  double rank_imbalance = 0;
  double dp_imbalance = 0;
  int64_t roll_back_count = 0;
  // Rows of each rank's fullest micro-batch over the bucket; the first ranks
  // only.
  std::vector<float> rank_load = {};

  friend bool operator==(const DaemonPlan&, const DaemonPlan&) = default;
};

// One job. Counts are since the daemon started.
struct DaemonJob {
  std::string name = {};
  std::string owner = {};
  int64_t generation = 0;
  int64_t calibration_epoch = 0;
  int64_t rank_count = 0;
  int64_t bucket_size_tokens = 0;
  int64_t plan_count = 0;
  int64_t report_count = 0;
  int64_t out_of_memory_count = 0;
  std::optional<DaemonPlan> last_plan = {};

  friend bool operator==(const DaemonJob&, const DaemonJob&) = default;
};

// The daemon. Counts are since it started.
struct DaemonStatus {
  std::string version = {};
  std::chrono::system_clock::time_point start_time = {};
  std::chrono::system_clock::time_point now = {};  // by the daemon's clock
  std::string store = {};                          // memory, sqlite or etcd
  bool draining = false;
  int64_t job_count = 0;
  int64_t planning_thread_count = 0;
  int64_t busy_thread_count = 0;
  int64_t queued_batch_count = 0;
  int64_t waiting_rank_count = 0;
  int64_t plan_count = 0;
  int64_t refusal_count = 0;
  int64_t report_count = 0;
  int64_t out_of_memory_count = 0;
  // Those that planned last, newest first.
  std::vector<DaemonJob> jobs = {};
  std::vector<DaemonPlan> plans = {};

  friend bool operator==(const DaemonStatus&, const DaemonStatus&) = default;
};

// Which answer of a daemon Inspect() returns.
struct Inspection {
  enum class Subject : int8_t {
    kStatus,        // GetStatus
    kJob,           // GetJob
    kCalibrations,  // ListCalibrations
    kRankPlan,      // GetRankPlan
  };
  Subject subject = Subject::kStatus;
  std::string job = {};  // of all but kStatus
  // Of kRankPlan.
  int64_t step = 0;
  int32_t attempt = 0;
  int32_t rank = 0;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_DAEMON_STATUS_H_
