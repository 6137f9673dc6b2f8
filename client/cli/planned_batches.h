// What `trace` and `report` draw: the batches of a lengths file and their
// plans, made in this process or read from a file.
#ifndef SKRULL_CLIENT_CLI_PLANNED_BATCHES_H_
#define SKRULL_CLIENT_CLI_PLANNED_BATCHES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/cli/plan_json.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace CLI {
class App;
}

namespace skrull::cli {

struct PlannedBatchesFlags {
  std::string job_spec_path;
  std::string lengths_path;
  std::string plan_path;  // empty = plan here
  int64_t batch_size = 0;
  int64_t step = 0;
  std::string policy;
  std::string name;
};

// Adds --job-spec, --lengths, --plan, --batch-size, --step, --policy and
// --name. `flags` must outlive the command.
void AddPlannedBatchesOptions(CLI::App& command, PlannedBatchesFlags* flags);

// Immutable.
class PlannedBatches {
 public:
  // Errors: usage, or an input that cannot be read.
  static absl::StatusOr<PlannedBatches> Open(const PlannedBatchesFlags& flags);

  const Job& job() const { return job_; }
  int64_t size() const { return count_; }

  // Lengths of batch `index`. REQUIRES: 0 <= index < size().
  std::span<const int64_t> Lengths(int64_t index) const;

  // The step of the batch, by the flags, or by its plan in the file.
  int64_t Step(int64_t index) const;

  // Its plan: made by this call, or that of the file, checked. Errors: why the
  // batch is refused, or FAILED_PRECONDITION for an illegal plan.
  absl::StatusOr<Plan> PlanOf(int64_t index) const;

 private:
  explicit PlannedBatches(const Job& job) : job_(job) {}

  Job job_;
  std::vector<int64_t> lengths_;
  std::vector<PlanLine> lines_;  // of the file; empty = plan here
  int64_t batch_size_ = 0;
  int64_t count_ = 0;
  std::optional<Policy> policy_;
  int64_t step_ = 0;
  std::string name_;
};

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_PLANNED_BATCHES_H_
