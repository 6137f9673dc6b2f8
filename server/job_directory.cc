#include "skrull/server/job_directory.h"

#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {

absl::Status RegisteredJob::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

absl::Status RegisteredJob::CheckGeneration(int64_t generation) const {
  if (generation == 0 || generation == record_.generation) {
    return absl::OkStatus();
  }
  return MakeError(
      {.reason = ErrorReason::kGenerationMismatch, .field = "generation"},
      "generation: job " + record_.name + " has generation " +
          std::to_string(record_.generation) + ", the call is for generation " +
          std::to_string(generation));
}

absl::Status RegisteredJob::Write(const std::function<absl::Status()>& write) {
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return ended_;
    ++writes_;
  }
  absl::Status status = write();
  MutexLock lock(&mutex_);
  if (--writes_ == 0) written_.SignalAll();
  return status;
}

void RegisteredJob::SetEnded(const absl::Status& status) {
  MutexLock lock(&mutex_);
  ended_ = status;
  while (writes_ > 0) written_.Wait(&mutex_);
}

JobDirectory::JobDirectory(JobStore* store, Metrics* metrics, Observer on_end)
    : store_(store), metrics_(metrics), on_end_(std::move(on_end)) {}

absl::Status JobDirectory::LoadAll(const Logger& logger) {
  constexpr int64_t kPage = 1000;
  MutexLock lock(&change_);
  std::string after;
  while (true) {
    absl::StatusOr<std::vector<JobRecord>> page = store_->List(after, kPage);
    if (!page.ok()) return page.status();
    for (const JobRecord& record : *page) {
      const absl::StatusOr<Job> job = JobFromProto(record.spec);
      if (job.ok()) {
        Insert(record, *job);
      } else {
        logger.Error("stored_job_invalid",
                     {{"job", record.name},
                      {"problem", std::string(job.status().message())}});
      }
    }
    if (static_cast<int64_t>(page->size()) < kPage) return absl::OkStatus();
    after = page->back().name;
  }
}

absl::StatusOr<std::shared_ptr<RegisteredJob>> JobDirectory::Find(
    const std::string& name) {
  {
    MutexLock lock(&mutex_);
    const auto it = jobs_.find(name);
    if (it != jobs_.end()) return it->second;
  }
  return MakeError({.reason = ErrorReason::kJobNotFound},
                   "there is no job " + name);
}

std::vector<std::shared_ptr<RegisteredJob>> JobDirectory::List(
    const std::string& after, int64_t limit) {
  std::vector<std::shared_ptr<RegisteredJob>> jobs;
  MutexLock lock(&mutex_);
  for (auto it = jobs_.upper_bound(after);
       it != jobs_.end() && static_cast<int64_t>(jobs.size()) < limit; ++it) {
    jobs.push_back(it->second);
  }
  return jobs;
}

int64_t JobDirectory::count() {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(jobs_.size());
}

absl::StatusOr<JobRecord> JobDirectory::Create(const JobRecord& wanted,
                                               const Job& job,
                                               int64_t max_jobs) {
  MutexLock lock(&change_);
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> old = Find(wanted.name);
  const bool replaces =
      old.ok() && wanted.generation > (*old)->record().generation;
  if (replaces) {
    (*old)->SetEnded(MakeError(
        {.reason = ErrorReason::kGenerationMismatch, .field = "generation"},
        "generation: job " + wanted.name + " was replaced by generation " +
            std::to_string(wanted.generation)));
  }
  absl::StatusOr<JobRecord> record = store_->Create(wanted, max_jobs);
  if (!record.ok()) {
    if (replaces) (*old)->SetEnded(absl::OkStatus());
    return record;
  }
  if (replaces) Remove(**old);
  if (replaces || !old.ok()) Insert(*record, job);
  return record;
}

absl::Status JobDirectory::Delete(const std::string& name, int64_t generation) {
  MutexLock lock(&change_);
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> job = Find(name);
  // One that LoadAll left out can be deleted, too.
  if (!job.ok()) return store_->Delete(name, generation);
  absl::Status status = (*job)->CheckGeneration(generation);
  if (!status.ok()) return status;
  (*job)->SetEnded(MakeError({.reason = ErrorReason::kJobNotFound},
                             "job " + name + " was deleted"));
  status = store_->Delete(name, generation);
  if (status.ok()) {
    Remove(**job);
  } else {
    (*job)->SetEnded(absl::OkStatus());
  }
  return status;
}

void JobDirectory::Insert(const JobRecord& record, const Job& job) {
  auto registered = std::make_shared<RegisteredJob>(next_id_++, record, job);
  MutexLock lock(&mutex_);
  jobs_[record.name] = std::move(registered);
  metrics_->SetJobs(static_cast<int64_t>(jobs_.size()));
}

void JobDirectory::Remove(const RegisteredJob& job) {
  {
    MutexLock lock(&mutex_);
    jobs_.erase(job.record().name);
    metrics_->SetJobs(static_cast<int64_t>(jobs_.size()));
  }
  on_end_(job);
}

}  // namespace skrull
