// A store in memory: the fastest, and the model the others are tested against.
#ifndef SKRULL_SERVER_MEMORY_STORE_H_
#define SKRULL_SERVER_MEMORY_STORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skrull/server/mutex.h"
#include "skrull/server/store.h"
#include "skrull/server/store_rules.h"

namespace skrull {

// Nothing survives the process. Never fails with kStoreFailed, and never blocks
// but for other callers. O(log) a call, plus what it returns or forgets;
// Create is O(jobs).
class MemoryStore final : public Store {
 public:
  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit) override;
  absl::Status Delete(const JobLife& life) override;
  absl::StatusOr<int64_t> Count() override;
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next) override;
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) override;

  absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                    int64_t kept_steps) override;
  absl::StatusOr<std::optional<PlanRecord>> Find(const PlanKey& key,
                                                 int64_t generation) override;
  absl::Status PutReport(const JobLife& life, const v1::StepReport& report,
                         int64_t kept_steps) override;
  absl::StatusOr<std::vector<v1::StepReport>> Reports(const PlanKey& key,
                                                      int64_t generation,
                                                      int64_t limit) override;
  absl::StatusOr<std::vector<PlanKey>> LatestSteps(const std::string& job,
                                                   int64_t generation,
                                                   int64_t limit) override;

 private:
  // A step is planned (has plans) or only reported; each kind has its own order
  // and its own share of kept_steps.
  struct Step {
    // Of its last commit, or last report if only reported; 0 = none yet.
    int64_t order = 0;
    std::map<int32_t, PlanRecord> plans;  // by attempt
    std::map<std::pair<int32_t, int32_t>, v1::StepReport>
        reports;  // by attempt and rank
  };
  struct JobEntry {
    JobRecord record;
    std::deque<v1::Calibration> epochs;  // the last is record.calibration
    int64_t next_order = 1;
    std::map<int64_t, Step> steps;
    std::map<int64_t, int64_t> planned;   // order -> step
    std::map<int64_t, int64_t> reported;  // order -> step
  };

  // What Create needs to know about the jobs there are.
  JobCounts CountJobs(const std::string& owner) const SKRULL_REQUIRES(mutex_);
  // The job in that very life, or why there is none.
  absl::StatusOr<JobEntry*> FindJob(const JobLife& life)
      SKRULL_REQUIRES(mutex_);
  // The step, if the job is at that generation and has it; else nullptr.
  const Step* FindStep(const PlanKey& key, int64_t generation) const
      SKRULL_REQUIRES(mutex_);
  static void Prune(int64_t kept_steps, std::map<int64_t, int64_t>* by_order,
                    std::map<int64_t, Step>* steps);

  mutable Mutex mutex_;
  int64_t last_version_ SKRULL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, JobEntry> jobs_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull

#endif  // SKRULL_SERVER_MEMORY_STORE_H_
