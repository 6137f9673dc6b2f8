#include "skrull/server/memory_store.h"

#include <algorithm>
#include <limits>

namespace skrull {

absl::StatusOr<JobRecord> MemoryStore::Create(const JobRecord& wanted,
                                              const CreateTerms& terms) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(wanted.name);
  std::optional<JobRecord> standing;
  if (found != jobs_.end()) standing = found->second.record;
  absl::StatusOr<std::optional<JobRecord>> record =
      DecideCreate(standing, wanted, CountJobs(wanted.owner), terms);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return *standing;
  JobEntry entry;
  entry.record = **record;
  entry.record.birth = entry.record.version = ++last_version_;
  entry.epochs.push_back(entry.record.calibration);
  const JobRecord stored = entry.record;
  jobs_.insert_or_assign(wanted.name, std::move(entry));
  return stored;
}

absl::StatusOr<JobRecord> MemoryStore::Get(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return JobNotFound(name);
  return found->second.record;
}

absl::StatusOr<std::vector<JobRecord>> MemoryStore::List(
    const std::string& after, int64_t limit) {
  MutexLock lock(&mutex_);
  std::vector<JobRecord> records;
  for (auto it = jobs_.upper_bound(after); it != jobs_.end(); ++it) {
    if (static_cast<int64_t>(records.size()) >= limit) break;
    records.push_back(it->second.record);
  }
  return records;
}

absl::Status MemoryStore::Delete(const JobLife& life) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(life.name);
  if (found == jobs_.end()) return JobNotFound(life.name);
  absl::Status status = CheckLife(found->second.record, life);
  if (!status.ok()) return status;
  ++last_version_;
  jobs_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MemoryStore::Count() {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(jobs_.size());
}

absl::StatusOr<JobRecord> MemoryStore::Advance(const JobLife& life,
                                               const v1::Calibration& next) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job = FindJob(life);
  if (!job.ok()) return job.status();
  JobEntry& entry = **job;
  if (!AdvancesTo(entry.record, next)) return entry.record;
  entry.record.calibration = next;
  entry.record.version = ++last_version_;
  entry.epochs.push_back(next);
  if (static_cast<int64_t>(entry.epochs.size()) > kKeptEpochs) {
    entry.epochs.pop_front();
  }
  return entry.record;
}

absl::StatusOr<std::vector<v1::Calibration>> MemoryStore::Calibrations(
    const std::string& name, int64_t generation) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job = FindJob({name, generation});
  if (!job.ok()) return job.status();
  const auto& epochs = (*job)->epochs;
  return std::vector<v1::Calibration>(epochs.begin(), epochs.end());
}

absl::StatusOr<PlanRecord> MemoryStore::Commit(const PlanRecord& record,
                                               int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job =
      FindJob({record.key.job, record.generation, record.birth});
  if (!job.ok()) return job.status();
  JobEntry& entry = **job;
  Step& step = entry.steps[record.key.step];
  const auto standing = step.plans.find(record.key.attempt);
  if (standing != step.plans.end()) return standing->second;
  // A step that had no entry, or was only reported, becomes a planned one.
  (step.plans.empty() ? entry.reported : entry.planned).erase(step.order);
  step.order = entry.next_order++;
  entry.planned.emplace(step.order, record.key.step);
  step.plans.emplace(record.key.attempt, record);
  Prune(kept_steps, &entry.planned, &entry.steps);
  return record;
}

absl::StatusOr<std::optional<PlanRecord>> MemoryStore::Find(
    const PlanKey& key, int64_t generation) {
  MutexLock lock(&mutex_);
  const Step* const step = FindStep(key, generation);
  if (step == nullptr) return std::optional<PlanRecord>();
  const auto found = step->plans.find(key.attempt);
  if (found == step->plans.end()) return std::optional<PlanRecord>();
  return std::optional<PlanRecord>(found->second);
}

absl::Status MemoryStore::PutReport(const JobLife& life,
                                    const v1::StepReport& report,
                                    int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job = FindJob(life);
  if (!job.ok()) return job.status();
  JobEntry& entry = **job;
  Step& step = entry.steps[report.step()];
  step.reports.insert_or_assign({report.attempt(), report.rank()}, report);
  if (step.plans.empty()) {
    entry.reported.erase(step.order);
    step.order = entry.next_order++;
    entry.reported.emplace(step.order, report.step());
    Prune(kept_steps, &entry.reported, &entry.steps);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::StepReport>> MemoryStore::Reports(
    const PlanKey& key, int64_t generation, int64_t limit) {
  MutexLock lock(&mutex_);
  std::vector<v1::StepReport> reports;
  const Step* const step = FindStep(key, generation);
  if (step == nullptr) return reports;
  constexpr int32_t kFirstRank = std::numeric_limits<int32_t>::min();
  for (auto it = step->reports.lower_bound({key.attempt, kFirstRank});
       it != step->reports.end() && it->first.first == key.attempt; ++it) {
    if (static_cast<int64_t>(reports.size()) >= limit) break;
    reports.push_back(it->second);
  }
  return reports;
}

absl::StatusOr<std::vector<PlanKey>> MemoryStore::LatestSteps(
    const std::string& job, int64_t generation, int64_t limit) {
  MutexLock lock(&mutex_);
  std::vector<PlanKey> keys;
  const absl::StatusOr<JobEntry*> found = FindJob({job, generation});
  if (!found.ok()) return keys;
  const JobEntry& entry = **found;
  for (auto it = entry.planned.rbegin(); it != entry.planned.rend(); ++it) {
    if (static_cast<int64_t>(keys.size()) >= limit) break;
    const int64_t step = it->second;
    keys.push_back({job, step, entry.steps.at(step).plans.rbegin()->first});
  }
  return keys;
}

JobCounts MemoryStore::CountJobs(const std::string& owner) const {
  JobCounts counts{.all = static_cast<int64_t>(jobs_.size())};
  for (const auto& [name, entry] : jobs_) {
    if (entry.record.owner == owner) ++counts.of_owner;
  }
  return counts;
}

absl::StatusOr<MemoryStore::JobEntry*> MemoryStore::FindJob(
    const JobLife& life) {
  const auto found = jobs_.find(life.name);
  if (found == jobs_.end()) return JobNotFound(life.name);
  const JobRecord& standing = found->second.record;
  if (standing.generation != life.generation) {
    return GenerationMismatch(life.name, standing.generation, life.generation);
  }
  absl::Status same = CheckBirth(life.name, standing.birth, life.birth);
  if (!same.ok()) return same;
  return &found->second;
}

const MemoryStore::Step* MemoryStore::FindStep(const PlanKey& key,
                                               int64_t generation) const {
  const auto job = jobs_.find(key.job);
  if (job == jobs_.end() || job->second.record.generation != generation) {
    return nullptr;
  }
  const auto step = job->second.steps.find(key.step);
  return step == job->second.steps.end() ? nullptr : &step->second;
}

void MemoryStore::Prune(int64_t kept_steps,
                        std::map<int64_t, int64_t>* by_order,
                        std::map<int64_t, Step>* steps) {
  const auto kept = static_cast<size_t>(std::max<int64_t>(1, kept_steps));
  while (by_order->size() > kept) {
    steps->erase(by_order->begin()->second);
    by_order->erase(by_order->begin());
  }
}

}  // namespace skrull
