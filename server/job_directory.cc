#include "skrull/server/job_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

absl::Status ReplacedError(const std::string& name, int64_t generation) {
  return MakeError(
      {.reason = ErrorReason::kGenerationMismatch, .field = "generation"},
      absl::StrCat("generation: job ", name, " was replaced by generation ",
                   generation));
}

absl::Status DeletedError(const std::string& name) {
  return MakeError({.reason = ErrorReason::kJobNotFound},
                   absl::StrCat("job ", name, " was deleted"));
}

absl::StatusOr<std::shared_ptr<const CalibratedJob>> Calibrate(
    const JobRecord& record) {
  v1::JobSpec spec = ApplyCalibration(record.spec, record.calibration);
  absl::StatusOr<Job> job = JobFromProto(spec);
  if (!job.ok()) return job.status();
  return std::make_shared<const CalibratedJob>(
      CalibratedJob{.calibration = record.calibration,
                    .spec = std::move(spec),
                    .job = *std::move(job),
                    .version = record.version});
}

}  // namespace

// ---------------------------------------------------------------------------
// RegisteredJob.

absl::StatusOr<std::shared_ptr<RegisteredJob>> RegisteredJob::Create(
    uint64_t id, const JobRecord& record) {
  absl::StatusOr<Job> job = JobFromProto(record.spec);
  if (!job.ok()) return job.status();
  absl::StatusOr<std::shared_ptr<const CalibratedJob>> calibrated =
      Calibrate(record);
  if (!calibrated.ok()) return calibrated.status();
  return std::shared_ptr<RegisteredJob>(
      new RegisteredJob(id, record, *std::move(job), *std::move(calibrated)));
}

RegisteredJob::RegisteredJob(uint64_t id, const JobRecord& record, Job job,
                             std::shared_ptr<const CalibratedJob> calibrated)
    : id_(id),
      record_(record),
      job_(std::move(job)),
      calibrated_(std::move(calibrated)) {}

std::shared_ptr<const CalibratedJob> RegisteredJob::calibrated() const {
  MutexLock lock(&mutex_);
  return calibrated_;
}

JobRecord RegisteredJob::CurrentRecord() const {
  const std::shared_ptr<const CalibratedJob> now = calibrated();
  JobRecord record = record_;
  record.calibration = now->calibration;
  record.version = now->version;
  return record;
}

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

absl::Status RegisteredJob::Update(const JobRecord& record) {
  // Made outside the lock; a younger one may come first.
  absl::StatusOr<std::shared_ptr<const CalibratedJob>> calibrated =
      Calibrate(record);
  if (!calibrated.ok()) return calibrated.status();
  MutexLock lock(&mutex_);
  if ((*calibrated)->version > calibrated_->version) {
    calibrated_ = *std::move(calibrated);
  }
  return absl::OkStatus();
}

void RegisteredJob::Suspend(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!for_good_) ended_ = status;
  while (writes_ > 0) written_.Wait(&mutex_);
}

void RegisteredJob::Resume() {
  MutexLock lock(&mutex_);
  if (!for_good_) ended_ = absl::OkStatus();
}

void RegisteredJob::End(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (for_good_) return;
  for_good_ = true;
  ended_ = status;
}

// ---------------------------------------------------------------------------
// JobDirectory: what callers see.

JobDirectory::JobDirectory(JobStore* store, const Logger* logger,
                           Metrics* metrics, Observer on_end)
    : store_(store),
      logger_(logger),
      metrics_(metrics),
      on_end_(std::move(on_end)) {}

JobDirectory::~JobDirectory() { store_->Watch(nullptr); }

absl::Status JobDirectory::LoadAll() {
  constexpr int64_t kPage = 1000;
  MutexLock lock(&change_);
  {
    MutexLock loading(&mutex_);
    loading_ = true;
  }
  store_->Watch([this](const JobChange& change) { OnChange(change); });
  std::string after;
  while (true) {
    absl::StatusOr<std::vector<JobRecord>> page = store_->List(after, kPage);
    if (!page.ok()) return page.status();
    // One that is not valid is left out, as the log says.
    for (const JobRecord& record : *page) (void)Apply(record, Source::kStore);
    if (static_cast<int64_t>(page->size()) < kPage) break;
    after = page->back().name;
  }
  std::vector<JobChange> changes;
  do {
    for (const JobChange& change : changes) ApplyChange(change);
    changes.clear();
    MutexLock loading(&mutex_);
    changes.swap(told_while_loading_);
    loading_ = !changes.empty();
  } while (!changes.empty());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RegisteredJob>> JobDirectory::Find(
    const std::string& name) {
  {
    MutexLock lock(&mutex_);
    std::shared_ptr<RegisteredJob> job = Known(name);
    if (job != nullptr) return job;
  }
  return MakeError({.reason = ErrorReason::kJobNotFound},
                   "there is no job " + name);
}

absl::StatusOr<std::shared_ptr<RegisteredJob>> JobDirectory::FindFor(
    const Caller& who, Access access, const std::string& name) {
  absl::StatusOr<std::shared_ptr<RegisteredJob>> job = Find(name);
  if (!job.ok()) return job;
  absl::Status allowed = AuthorizeJob(who, access, (*job)->record().owner);
  if (!allowed.ok()) return allowed;
  return job;
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

JobDirectory::Page JobDirectory::ListFor(const Caller& who,
                                         const std::string& after,
                                         int64_t limit) {
  Page page;
  int64_t looks = 0;
  MutexLock lock(&mutex_);
  auto it = jobs_.upper_bound(after);
  for (;
       it != jobs_.end() && std::ssize(page.jobs) < limit && looks < kMaxLooks;
       ++it, ++looks) {
    page.next = it->first;
    if (MayAccess(who, Access::kLook, it->second->record().owner)) {
      page.jobs.push_back(it->second);
    }
  }
  if (it == jobs_.end()) page.next.clear();
  return page;
}

int64_t JobDirectory::count() {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(jobs_.size());
}

absl::StatusOr<JobRecord> JobDirectory::Create(const JobRecord& wanted,
                                               const CreateTerms& terms) {
  MutexLock lock(&change_);
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> old = Find(wanted.name);
  // What the store will refuse must not hold up another's job.
  const bool allowed =
      old.ok() && (terms.any_owner || (*old)->record().owner == wanted.owner);
  const bool replaces =
      allowed && wanted.generation > (*old)->record().generation;
  if (replaces) {
    (*old)->Suspend(ReplacedError(wanted.name, wanted.generation));
  }
  absl::StatusOr<JobRecord> record = store_->Create(wanted, terms);
  absl::Status status = record.status();
  if (status.ok()) status = Apply(*record, Source::kOwnCall);
  if (replaces) (*old)->Resume();  // unless it has been replaced
  if (!status.ok()) return status;
  return record;
}

absl::Status JobDirectory::Delete(const std::string& name, int64_t generation,
                                  const Caller& who) {
  MutexLock lock(&change_);
  const absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      FindFor(who, Access::kUse, name);
  // An admin can delete one that was left out, too.
  if (absl::IsNotFound(job.status()) && who.role == Role::kAdmin) {
    return store_->Delete({.name = name, .generation = generation});
  }
  if (!job.ok()) return job.status();
  absl::Status status = (*job)->CheckGeneration(generation);
  if (!status.ok()) return status;
  const absl::Status deleted = DeletedError(name);
  (*job)->Suspend(deleted);
  // Of this life alone: one that another daemon began meanwhile may be of an
  // owner who is not `who`.
  status = store_->Delete(LifeOf((*job)->record()));
  if (status.ok()) {
    Remove(*job, deleted);
  } else {
    (*job)->Resume();
  }
  return status;
}

absl::StatusOr<JobRecord> JobDirectory::Advance(
    const std::shared_ptr<RegisteredJob>& job, const v1::Calibration& next) {
  JobRecord wanted = job->record();
  wanted.calibration = next;
  absl::Status status = Calibrate(wanted).status();
  if (!status.ok()) return status;
  absl::StatusOr<JobRecord> record = JobRecord();
  status = job->Write([&] {
    record = store_->Advance(LifeOf(wanted), next);
    if (!record.ok()) return record.status();
    // Inside the write, so that no deletion comes between.
    return Apply(*record, Source::kOwnCall);
  });
  if (!status.ok()) return status;
  return record;
}

// ---------------------------------------------------------------------------
// JobDirectory: taking in records.

void JobDirectory::OnChange(const JobChange& change) {
  {
    MutexLock lock(&mutex_);
    if (loading_) {
      told_while_loading_.push_back(change);
      return;
    }
  }
  ApplyChange(change);
}

void JobDirectory::ApplyChange(const JobChange& change) {
  if (change.record) {
    // One that is not valid is left out, as the log says.
    (void)Apply(*change.record, Source::kStore);
  } else {
    std::shared_ptr<RegisteredJob> job;
    {
      MutexLock lock(&mutex_);
      job = Known(change.name);
    }
    if (job != nullptr && job->calibrated()->version < change.version) {
      Remove(job, DeletedError(change.name));
    }
  }
  MutexLock lock(&mutex_);
  told_ = std::max(told_, change.version);
}

absl::Status JobDirectory::Apply(const JobRecord& record, Source source) {
  std::shared_ptr<RegisteredJob> known;
  absl::Status ended;
  absl::Status result;
  {
    MutexLock lock(&apply_);
    int64_t least = 0;
    {
      MutexLock known_lock(&mutex_);
      known = Known(record.name);
      if (source == Source::kOwnCall) least = told_;
    }
    if (known != nullptr) least = known->calibrated()->version;
    if (record.version <= least) return absl::OkStatus();
    if (known != nullptr && known->IsLifeOf(record)) {
      result = known->Update(record);
      if (result.ok()) return absl::OkStatus();
      Put(record.name, nullptr);
      ended = result;
    } else {
      absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
          RegisteredJob::Create(next_id_++, record);
      result = job.status();
      Put(record.name, job.ok() ? *std::move(job) : nullptr);
      ended =
          known != nullptr && known->record().generation == record.generation
              ? DeletedError(record.name)
              : ReplacedError(record.name, record.generation);
    }
  }
  if (!result.ok()) {
    logger_->Error(
        "stored_job_invalid",
        {{"job", record.name}, {"problem", std::string(result.message())}});
  }
  if (known != nullptr) {
    known->End(ended);
    on_end_(*known);
  }
  return result;
}

std::shared_ptr<RegisteredJob> JobDirectory::Known(const std::string& name) {
  const auto it = jobs_.find(name);
  return it == jobs_.end() ? nullptr : it->second;
}

void JobDirectory::Put(const std::string& name,
                       std::shared_ptr<RegisteredJob> job) {
  MutexLock lock(&mutex_);
  if (job != nullptr) {
    jobs_[name] = std::move(job);
  } else {
    jobs_.erase(name);
  }
  metrics_->SetJobs(static_cast<int64_t>(jobs_.size()));
}

void JobDirectory::Remove(const std::shared_ptr<RegisteredJob>& job,
                          const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    const auto it = jobs_.find(job->record().name);
    if (it != jobs_.end() && it->second == job) jobs_.erase(it);
    metrics_->SetJobs(static_cast<int64_t>(jobs_.size()));
  }
  job->End(reason);
  on_end_(*job);
}

}  // namespace skrull
