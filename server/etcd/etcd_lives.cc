#include "skrull/server/etcd/etcd_lives.h"

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/etcd/etcd_race.h"
#include "skrull/server/etcd/etcd_value.h"
#include "skrull/server/store_rules.h"

namespace skrull {

bool IsGone(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  return detail && (detail->reason == ErrorReason::kJobNotFound ||
                    detail->reason == ErrorReason::kGenerationMismatch);
}

std::optional<EtcdLife> EtcdLives::Recall(const std::string& job,
                                          int64_t generation) {
  MutexLock lock(&mutex_);
  const auto it = lives_.find(job);
  if (it == lives_.end() || it->second.generation != generation) {
    return std::nullopt;
  }
  return it->second;
}

absl::StatusOr<EtcdLife> EtcdLives::Fetch(const std::string& job) {
  const absl::StatusOr<etcdserverpb::RangeResponse> range =
      client_->Range(GetKey(keys_->Record(job)));
  if (!range.ok()) return range.status();
  if (range->kvs_size() == 0) {
    MutexLock lock(&mutex_);
    lives_.erase(job);
    return JobNotFound(job);
  }
  const absl::StatusOr<skrull::etcd::JobValue> value =
      ParseValue<skrull::etcd::JobValue>(*client_, range->kvs(0));
  if (!value.ok()) return value.status();
  const EtcdLife life = {.generation = value->generation(),
                         .birth = range->kvs(0).mod_revision()};
  MutexLock lock(&mutex_);
  lives_.insert_or_assign(job, life);
  return life;
}

absl::StatusOr<EtcdLives::Found> EtcdLives::Read(const std::string& job,
                                                 int64_t generation,
                                                 const AddReads& add_reads) {
  EtcdRace race(client_);
  std::optional<EtcdLife> life = Recall(job, generation);
  while (race.Again()) {
    if (!life) {
      const absl::StatusOr<EtcdLife> fetched = Fetch(job);
      if (!fetched.ok()) return fetched.status();
      if (fetched->generation != generation) {
        return GenerationMismatch(job, fetched->generation, generation);
      }
      life = *fetched;
    }
    etcdserverpb::RangeRequest record = GetKey(keys_->Record(job));
    record.set_keys_only(true);
    EtcdTxn txn;
    txn.Get(record);
    add_reads(keys_->Life(job, life->birth), &txn);
    absl::StatusOr<etcdserverpb::TxnResponse> answers =
        client_->Txn(txn.request());
    if (!answers.ok()) return answers.status();
    if (RevisionOf(KeyAt(*answers, 0)) == life->birth) {
      return Found{.life = *life, .answers = *std::move(answers)};
    }
    life.reset();
  }
  return race.Lost(absl::StrCat("job \"", job, "\""));
}

}  // namespace skrull
