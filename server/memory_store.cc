#include "skrull/server/memory_store.h"

#include <algorithm>
#include <limits>

#include "skrull/server/store_rules.h"

namespace skrull {

absl::StatusOr<JobRecord> MemoryStore::Create(const JobRecord& wanted,
                                              int64_t max_jobs) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(wanted.name);
  std::optional<JobRecord> standing;
  if (found != jobs_.end()) standing = found->second.record;
  absl::StatusOr<std::optional<JobRecord>> record = DecideCreate(
      standing, wanted, static_cast<int64_t>(jobs_.size()), max_jobs);
  if (!record.ok()) return record.status();
  if (!record->has_value()) return *standing;
  JobEntry entry;
  entry.record = **record;
  jobs_.insert_or_assign(wanted.name, std::move(entry));
  return **record;
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

absl::Status MemoryStore::Delete(const std::string& name, int64_t generation) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return JobNotFound(name);
  absl::Status status =
      CheckGeneration(name, found->second.record.generation, generation);
  if (status.ok()) jobs_.erase(found);
  return status;
}

absl::StatusOr<int64_t> MemoryStore::Count() {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(jobs_.size());
}

absl::StatusOr<PlanRecord> MemoryStore::Commit(const PlanRecord& record,
                                               int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> job = FindJob(record.key.job, record.generation);
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

absl::Status MemoryStore::PutReport(const std::string& job, int64_t generation,
                                    const v1::StepReport& report,
                                    int64_t kept_steps) {
  MutexLock lock(&mutex_);
  absl::StatusOr<JobEntry*> found = FindJob(job, generation);
  if (!found.ok()) return found.status();
  JobEntry& entry = **found;
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
    const PlanKey& key, int64_t generation) {
  MutexLock lock(&mutex_);
  std::vector<v1::StepReport> reports;
  const Step* const step = FindStep(key, generation);
  if (step == nullptr) return reports;
  constexpr int32_t kFirstRank = std::numeric_limits<int32_t>::min();
  for (auto it = step->reports.lower_bound({key.attempt, kFirstRank});
       it != step->reports.end() && it->first.first == key.attempt; ++it) {
    reports.push_back(it->second);
  }
  return reports;
}

absl::StatusOr<MemoryStore::JobEntry*> MemoryStore::FindJob(
    const std::string& name, int64_t generation) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return JobNotFound(name);
  const int64_t standing = found->second.record.generation;
  if (standing != generation) {
    return GenerationMismatch(name, standing, generation);
  }
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
