#include "skrull/server/etcd/etcd_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"
#include "skrull/server/etcd/etcd_race.h"
#include "skrull/server/etcd/etcd_value.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

// Keys of an ended life that one request deletes: few enough that etcd answers
// in milliseconds.
constexpr int64_t kTrashBatchKeys = 2'000;
// Such requests of one CollectTrash.
constexpr int kTrashBatches = 100;

}  // namespace

absl::StatusOr<EtcdJobs::Counted> EtcdJobs::CountOf(
    const etcdserverpb::KeyValue* kv) const {
  if (kv == nullptr) return Counted();
  const absl::StatusOr<skrull::etcd::CountValue> value =
      ParseValue<skrull::etcd::CountValue>(*client_, *kv);
  if (!value.ok()) return value.status();
  return Counted{.jobs = value->count(), .revision = kv->mod_revision()};
}

absl::StatusOr<EtcdJobs::Counted> EtcdJobs::ReadOwner(
    const std::string& owner) {
  const absl::StatusOr<etcdserverpb::RangeResponse> range =
      client_->Range(GetKey(keys_->OwnerCount(owner)));
  if (!range.ok()) return range.status();
  return CountOf(range->kvs_size() == 0 ? nullptr : &range->kvs(0));
}

absl::StatusOr<EtcdJobs::Standing> EtcdJobs::Read(const std::string& name,
                                                  const std::string& owner) {
  EtcdTxn txn;
  txn.Get(GetKey(keys_->Record(name)))
      .Get(GetKey(keys_->Epoch(name)))
      .Get(GetKey(keys_->JobCount()))
      .Get(GetKey(keys_->OwnerCount(owner)));
  const absl::StatusOr<etcdserverpb::TxnResponse> read =
      client_->Txn(txn.request());
  if (!read.ok()) return read.status();
  Standing standing;
  const etcdserverpb::KeyValue* const record = KeyAt(*read, 0);
  const etcdserverpb::KeyValue* const epoch = KeyAt(*read, 1);
  if (record != nullptr && epoch != nullptr) {
    absl::StatusOr<JobRecord> job =
        JobRecordOf(*client_, name, *record, *epoch);
    if (!job.ok()) return job.status();
    standing.job = *std::move(job);
  }
  standing.epoch_revision = RevisionOf(epoch);
  const absl::StatusOr<Counted> all = CountOf(KeyAt(*read, 2));
  if (!all.ok()) return all.status();
  standing.all = *all;
  const absl::StatusOr<Counted> of_owner = CountOf(KeyAt(*read, 3));
  if (!of_owner.ok()) return of_owner.status();
  standing.of_owner = *of_owner;
  return standing;
}

void EtcdJobs::Add(const std::string& key, const Counted& counted, int64_t by,
                   EtcdTxn* txn) {
  txn->IfRevision(key, counted.revision);
  skrull::etcd::CountValue value;
  value.set_count(counted.jobs + by);
  if (value.count() <= 0) {
    txn->Delete(key);
  } else {
    txn->Put(key, CanonicalBytes(value));
  }
}

void EtcdJobs::EndLife(const JobRecord& job, EtcdTxn* txn) const {
  txn->Put(keys_->Trash(job.name, job.birth), "");
}

absl::StatusOr<JobRecord> EtcdJobs::Create(const JobRecord& wanted,
                                           const CreateTerms& terms) {
  EtcdRace race(client_);
  while (race.Again()) {
    const absl::StatusOr<Standing> standing = Read(wanted.name, wanted.owner);
    if (!standing.ok()) return standing.status();
    absl::StatusOr<std::optional<JobRecord>> decided = DecideCreate(
        standing->job, wanted,
        {.all = standing->all.jobs, .of_owner = standing->of_owner.jobs},
        terms);
    if (!decided.ok()) return decided.status();
    if (!decided->has_value()) return *standing->job;
    JobRecord record = **std::move(decided);
    const absl::StatusOr<bool> stored = Store(*standing, &record);
    if (!stored.ok()) return stored.status();
    if (*stored) {
      // What is left of the life that was replaced is out of reach already.
      if (standing->job) (void)CollectTrash();
      return record;
    }
  }
  return race.Lost(absl::StrCat("job \"", wanted.name, "\" or the jobs"));
}

absl::StatusOr<bool> EtcdJobs::Store(const Standing& standing,
                                     JobRecord* record) {
  const std::string value = EncodeJob(*record);
  if (static_cast<int64_t>(value.size()) > kMaxEtcdValueBytes) {
    return MakeError(
        {.reason = ErrorReason::kLimitExceeded,
         .field = "spec",
         .limit = kMaxEtcdValueBytes},
        absl::StrCat("spec: takes ", value.size(),
                     " bytes, etcd stores at most ", kMaxEtcdValueBytes));
  }
  EtcdTxn txn;
  txn.IfRevision(keys_->Record(record->name),
                 standing.job ? standing.job->birth : 0);
  if (!standing.job) Add(keys_->JobCount(), standing.all, 1, &txn);
  if (!standing.job || standing.job->owner != record->owner) {
    Add(keys_->OwnerCount(record->owner), standing.of_owner, 1, &txn);
  }
  if (standing.job) {
    EndLife(*standing.job, &txn);
    if (standing.job->owner != record->owner) {
      const absl::StatusOr<Counted> old = ReadOwner(standing.job->owner);
      if (!old.ok()) return old.status();
      Add(keys_->OwnerCount(standing.job->owner), *old, -1, &txn);
    }
  }
  txn.Put(keys_->Record(record->name), value)
      .Put(keys_->Epoch(record->name), CanonicalBytes(record->calibration))
      .Put(keys_->Changed(), "");
  const absl::StatusOr<etcdserverpb::TxnResponse> done =
      client_->Txn(txn.request());
  if (!done.ok()) return done.status();
  record->birth = record->version = done->header().revision();
  return done->succeeded();
}

absl::StatusOr<JobRecord> EtcdJobs::Get(const std::string& name) {
  absl::StatusOr<Standing> standing = Read(name, "");
  if (!standing.ok()) return standing.status();
  if (!standing->job) return JobNotFound(name);
  return *std::move(standing->job);
}

absl::StatusOr<std::vector<JobRecord>> EtcdJobs::List(const std::string& after,
                                                      int64_t limit) {
  std::vector<JobRecord> records;
  if (limit <= 0) return records;
  // The least string above `after`.
  const std::string first = after.empty() ? "" : after + '\0';
  etcdserverpb::RangeRequest range;
  range.set_key(keys_->Record(first));
  range.set_range_end(PrefixEnd(keys_->Records()));
  range.set_limit(limit);
  const absl::StatusOr<etcdserverpb::RangeResponse> jobs =
      client_->Range(range);
  if (!jobs.ok()) return jobs.status();
  if (jobs->kvs_size() == 0) return records;
  const auto name_of = [&](int i) {
    return jobs->kvs(i).key().substr(keys_->Records().size());
  };
  etcdserverpb::RangeRequest same;
  same.set_key(keys_->Epoch(name_of(0)));
  same.set_range_end(keys_->Epoch(name_of(jobs->kvs_size() - 1)) + '\0');
  same.set_revision(jobs->header().revision());
  const absl::StatusOr<etcdserverpb::RangeResponse> epochs =
      client_->Range(same);
  if (!epochs.ok()) return epochs.status();
  if (epochs->kvs_size() != jobs->kvs_size()) {
    return client_->Failed(absl::StrCat("there are ", epochs->kvs_size(),
                                        " calibration epochs for ",
                                        jobs->kvs_size(), " jobs"));
  }
  for (int i = 0; i < jobs->kvs_size(); ++i) {
    absl::StatusOr<JobRecord> record =
        JobRecordOf(*client_, name_of(i), jobs->kvs(i), epochs->kvs(i));
    if (!record.ok()) return record.status();
    records.push_back(*std::move(record));
  }
  return records;
}

absl::Status EtcdJobs::Delete(const JobLife& life) {
  int64_t attempted = 0;  // birth of the life
  EtcdRace race(client_);
  while (race.Again()) {
    const absl::StatusOr<Standing> standing = Read(life.name, "");
    if (!standing.ok()) return standing.status();
    // An attempt whose answer was lost may have ended the life it was for.
    if (attempted != 0 &&
        (!standing->job || standing->job->birth != attempted)) {
      return absl::OkStatus();
    }
    if (!standing->job) return JobNotFound(life.name);
    absl::Status status = CheckLife(*standing->job, life);
    if (!status.ok()) return status;
    attempted = standing->job->birth;
    const absl::StatusOr<bool> removed = Remove(*standing);
    if (!removed.ok()) return removed.status();
    if (*removed) {
      (void)CollectTrash();  // out of reach already
      return absl::OkStatus();
    }
  }
  return race.Lost(absl::StrCat("job \"", life.name, "\" or the jobs"));
}

absl::StatusOr<bool> EtcdJobs::Remove(const Standing& standing) {
  const JobRecord& job = *standing.job;
  const absl::StatusOr<Counted> of_owner = ReadOwner(job.owner);
  if (!of_owner.ok()) return of_owner.status();
  EtcdTxn txn;
  txn.IfRevision(keys_->Record(job.name), job.birth);
  Add(keys_->JobCount(), standing.all, -1, &txn);
  Add(keys_->OwnerCount(job.owner), *of_owner, -1, &txn);
  EndLife(job, &txn);
  txn.Delete(keys_->Record(job.name))
      .Delete(keys_->Epoch(job.name))
      .Put(keys_->Changed(), "");
  const absl::StatusOr<etcdserverpb::TxnResponse> done =
      client_->Txn(txn.request());
  if (!done.ok()) return done.status();
  return done->succeeded();
}

absl::Status EtcdJobs::CollectTrash() {
  constexpr int64_t kLives = 16;
  const absl::StatusOr<etcdserverpb::RangeResponse> lives =
      client_->Range(GetPrefix(keys_->TrashRoot(), kLives));
  if (!lives.ok()) return lives.status();
  int batches = 0;
  for (const etcdserverpb::KeyValue& life : lives->kvs()) {
    const std::string root = keys_->TrashedRoot(life.key());
    bool done = false;
    while (!done && batches++ < kTrashBatches) {
      etcdserverpb::RangeRequest some = GetPrefix(root, kTrashBatchKeys);
      some.set_keys_only(true);
      const absl::StatusOr<etcdserverpb::RangeResponse> keys =
          client_->Range(some);
      if (!keys.ok()) return keys.status();
      done = keys->count() <= keys->kvs_size();
      EtcdTxn txn;
      if (done) {
        txn.DeletePrefix(root).Delete(life.key());
      } else {
        txn.DeleteRange(root, keys->kvs(keys->kvs_size() - 1).key() + '\0');
      }
      const absl::StatusOr<etcdserverpb::TxnResponse> deleted =
          client_->Txn(txn.request());
      if (!deleted.ok()) return deleted.status();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> EtcdJobs::Count() {
  const absl::StatusOr<etcdserverpb::RangeResponse> range =
      client_->Range(GetKey(keys_->JobCount()));
  if (!range.ok()) return range.status();
  const absl::StatusOr<Counted> count =
      CountOf(range->kvs_size() == 0 ? nullptr : &range->kvs(0));
  if (!count.ok()) return count.status();
  return count->jobs;
}

absl::StatusOr<JobRecord> EtcdJobs::Advance(const JobLife& life,
                                            const v1::Calibration& next) {
  EtcdRace race(client_);
  while (race.Again()) {
    absl::StatusOr<Standing> standing = Read(life.name, "");
    if (!standing.ok()) return standing.status();
    if (!standing->job) return JobNotFound(life.name);
    JobRecord job = *std::move(standing->job);
    if (job.generation != life.generation) {
      return GenerationMismatch(life.name, job.generation, life.generation);
    }
    absl::Status same = CheckBirth(life.name, job.birth, life.birth);
    if (!same.ok()) return same;
    if (!AdvancesTo(job, next)) return job;
    const EtcdLifeKeys keys = keys_->Life(life.name, job.birth);
    const int64_t old = job.calibration.epoch();
    EtcdTxn txn;
    txn.IfRevision(keys_->Record(life.name), job.birth)
        .IfRevision(keys_->Epoch(life.name), standing->epoch_revision)
        .Put(keys_->Epoch(life.name), CanonicalBytes(next))
        .Put(keys.Epoch(old), CanonicalBytes(job.calibration))
        .Put(keys_->Changed(), "");
    // Kept: the one in force, and kKeptEpochs - 1 before it.
    const int64_t forgotten = next.epoch() - kKeptEpochs;
    if (forgotten >= 0) txn.Delete(keys.Epoch(forgotten));
    const absl::StatusOr<etcdserverpb::TxnResponse> done =
        client_->Txn(txn.request());
    if (!done.ok()) return done.status();
    if (!done->succeeded()) continue;
    job.calibration = next;
    job.version = done->header().revision();
    return job;
  }
  return race.Lost(absl::StrCat("the epoch of job \"", life.name, "\""));
}

absl::StatusOr<std::vector<v1::Calibration>> EtcdJobs::Calibrations(
    const std::string& name, int64_t generation) {
  EtcdRace race(client_);
  while (race.Again()) {
    const absl::StatusOr<JobRecord> job = Get(name);
    if (!job.ok()) return job.status();
    if (job->generation != generation) {
      return GenerationMismatch(name, job->generation, generation);
    }
    // If the job is as it was read, so are the epochs before.
    EtcdTxn txn;
    txn.Get(GetKey(keys_->Record(name)))
        .Get(GetKey(keys_->Epoch(name)))
        .Get(GetPrefix(keys_->Life(name, job->birth).Epochs()));
    const absl::StatusOr<etcdserverpb::TxnResponse> read =
        client_->Txn(txn.request());
    if (!read.ok()) return read.status();
    if (RevisionOf(KeyAt(*read, 0)) != job->birth) continue;
    std::vector<v1::Calibration> epochs;
    for (const etcdserverpb::KeyValue& kv : RangeAt(*read, 2).kvs()) {
      absl::StatusOr<v1::Calibration> epoch =
          ParseValue<v1::Calibration>(*client_, kv);
      if (!epoch.ok()) return epoch.status();
      epochs.push_back(*std::move(epoch));
    }
    if (KeyAt(*read, 1) == nullptr) continue;
    absl::StatusOr<v1::Calibration> now =
        ParseValue<v1::Calibration>(*client_, *KeyAt(*read, 1));
    if (!now.ok()) return now.status();
    epochs.push_back(*std::move(now));
    return epochs;
  }
  return race.Lost(absl::StrCat("job \"", name, "\""));
}

}  // namespace skrull
