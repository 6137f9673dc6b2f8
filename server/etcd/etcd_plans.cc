#include "skrull/server/etcd/etcd_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"
#include "skrull/server/etcd/etcd_race.h"
#include "skrull/server/etcd/etcd_steps.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_value.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

using Order = EtcdLifeKeys::Order;

// Chunks that are read at once.
constexpr int32_t kChunksPerRead = 8;

std::string Describe(const PlanKey& key) {
  return absl::StrCat("the plan of job \"", key.job, "\", step ", key.step,
                      ", attempt ", key.attempt);
}

}  // namespace

absl::StatusOr<skrull::etcd::PlanValue> EtcdPlans::ValueOf(
    const PlanRecord& record) const {
  skrull::etcd::PlanValue value;
  value.set_request_digest(record.request_digest);
  const auto bytes = static_cast<int64_t>(record.plan.size());
  // Half of a value, as the order of steps and the comparisons come with it.
  if (bytes <= kMaxEtcdValueBytes / 2) {
    value.set_plan(record.plan);
    return value;
  }
  const int64_t chunks = (bytes + kMaxEtcdValueBytes - 1) / kMaxEtcdValueBytes;
  if (chunks > kMaxChunks) {
    return MakeError({.reason = ErrorReason::kLimitExceeded,
                      .field = "lengths",
                      .limit = kMaxChunks * kMaxEtcdValueBytes},
                     absl::StrCat(Describe(record.key), " takes ", bytes,
                                  " bytes, the etcd store keeps at most ",
                                  kMaxChunks * kMaxEtcdValueBytes));
  }
  value.set_chunk_count(static_cast<int32_t>(chunks));
  value.set_chunk_digest(Sha256Hex(record.plan));
  return value;
}

absl::StatusOr<bool> EtcdPlans::WriteChunks(
    const PlanRecord& record, int64_t birth,
    const skrull::etcd::PlanValue& value) {
  const EtcdLifeKeys life = keys_->Life(record.key.job, birth);
  for (int32_t i = 0; i < value.chunk_count(); ++i) {
    const auto begin = static_cast<size_t>(i * kMaxEtcdValueBytes);
    EtcdTxn txn;
    txn.IfRevision(keys_->Record(record.key.job), birth)
        .Put(
            life.Chunk(record.key.step, record.key.attempt,
                       value.chunk_digest(), i),
            record.plan.substr(begin, static_cast<size_t>(kMaxEtcdValueBytes)));
    const absl::StatusOr<etcdserverpb::TxnResponse> done =
        client_->Txn(txn.request());
    if (!done.ok()) return done.status();
    if (!done->succeeded()) return false;
  }
  return true;
}

absl::StatusOr<PlanRecord> EtcdPlans::Commit(const PlanRecord& record,
                                             int64_t kept_steps) {
  const PlanKey& key = record.key;
  const absl::StatusOr<skrull::etcd::PlanValue> value = ValueOf(record);
  if (!value.ok()) return value.status();
  EtcdRace race(client_);
  while (race.Again()) {
    const absl::StatusOr<EtcdLives::Found> found =
        lives_->Read(key.job, record.generation,
                     [&](const EtcdLifeKeys& life, EtcdTxn* txn) {
                       txn->Get(GetKey(life.Plan(key.step, key.attempt)));
                       EtcdStep::AddReads(life, Order::kPlanned, key.step, txn);
                     });
    if (!found.ok()) return found.status();
    const int64_t birth = found->life.birth;
    absl::Status status = CheckBirth(key.job, birth, record.birth);
    if (!status.ok()) return status;
    const EtcdLifeKeys life = keys_->Life(key.job, birth);
    if (const auto* const stands = KeyAt(found->answers, 1)) {
      return ReadPlan(key, record.generation, life, *stands,
                      found->answers.header().revision());
    }
    EtcdStep step(client_, &life, Order::kPlanned, key.step);
    status = step.Take(found->answers, 2);
    if (!status.ok()) return status;
    const absl::StatusOr<bool> written = WriteChunks(record, birth, *value);
    if (!written.ok()) return written.status();
    if (!*written) continue;

    EtcdTxn txn;
    txn.IfRevision(keys_->Record(key.job), birth)
        .IfRevision(life.Plan(key.step, key.attempt), 0);
    for (int32_t i = 0; i < value->chunk_count(); ++i) {
      txn.IfExists(life.Chunk(key.step, key.attempt, value->chunk_digest(), i));
    }
    txn.Put(life.Plan(key.step, key.attempt), CanonicalBytes(*value));
    status = step.AddMove(key.attempt, kept_steps, &txn);
    if (!status.ok()) return status;
    const absl::StatusOr<etcdserverpb::TxnResponse> done =
        client_->Txn(txn.request());
    if (!done.ok()) return done.status();
    if (!done->succeeded()) continue;
    step.Prune(RangeAt(*done, done->responses_size() - 1), kept_steps);
    return record;
  }
  return race.Lost(Describe(key));
}

absl::StatusOr<PlanRecord> EtcdPlans::ReadPlan(const PlanKey& key,
                                               int64_t generation,
                                               const EtcdLifeKeys& life,
                                               const etcdserverpb::KeyValue& kv,
                                               int64_t revision) {
  absl::StatusOr<skrull::etcd::PlanValue> value =
      ParseValue<skrull::etcd::PlanValue>(*client_, kv);
  if (!value.ok()) return value.status();
  PlanRecord record;
  record.key = key;
  record.generation = generation;
  record.request_digest = value->request_digest();
  if (value->chunk_count() == 0) {
    record.plan = std::move(*value->mutable_plan());
    return record;
  }
  const std::string& digest = value->chunk_digest();
  const std::string end = PrefixEnd(life.Chunks(key.step, key.attempt, digest));
  for (int32_t i = 0; i < value->chunk_count(); i += kChunksPerRead) {
    etcdserverpb::RangeRequest some;
    some.set_key(life.Chunk(key.step, key.attempt, digest, i));
    some.set_range_end(end);
    some.set_limit(kChunksPerRead);
    some.set_revision(revision);
    const absl::StatusOr<etcdserverpb::RangeResponse> chunks =
        client_->Range(some);
    if (!chunks.ok()) return chunks.status();
    for (const etcdserverpb::KeyValue& chunk : chunks->kvs()) {
      record.plan += chunk.value();
    }
  }
  if (Sha256Hex(record.plan) != digest) {
    return client_->Failed(
        absl::StrCat(Describe(key), ": the chunks are not those it had"));
  }
  return record;
}

absl::StatusOr<std::optional<PlanRecord>> EtcdPlans::Find(const PlanKey& key,
                                                          int64_t generation) {
  const absl::StatusOr<EtcdLives::Found> found = lives_->Read(
      key.job, generation, [&](const EtcdLifeKeys& life, EtcdTxn* txn) {
        txn->Get(GetKey(life.Plan(key.step, key.attempt)));
      });
  if (IsGone(found.status())) return std::optional<PlanRecord>();
  if (!found.ok()) return found.status();
  const etcdserverpb::KeyValue* const kv = KeyAt(found->answers, 1);
  if (kv == nullptr) return std::optional<PlanRecord>();
  absl::StatusOr<PlanRecord> record =
      ReadPlan(key, generation, keys_->Life(key.job, found->life.birth), *kv,
               found->answers.header().revision());
  if (!record.ok()) return record.status();
  return std::optional<PlanRecord>(*std::move(record));
}

absl::StatusOr<std::vector<PlanKey>> EtcdPlans::LatestSteps(
    const std::string& job, int64_t generation, int64_t limit) {
  std::vector<PlanKey> keys;
  if (limit <= 0) return keys;
  const absl::StatusOr<EtcdLives::Found> found = lives_->Read(
      job, generation, [&](const EtcdLifeKeys& life, EtcdTxn* txn) {
        etcdserverpb::RangeRequest latest =
            GetPrefix(life.OrderRoot(Order::kPlanned), limit);
        latest.set_sort_order(etcdserverpb::RangeRequest::DESCEND);
        txn->Get(latest);
      });
  if (IsGone(found.status())) return keys;
  if (!found.ok()) return found.status();
  for (const etcdserverpb::KeyValue& kv : RangeAt(found->answers, 1).kvs()) {
    const absl::StatusOr<skrull::etcd::OrderValue> entry =
        ParseValue<skrull::etcd::OrderValue>(*client_, kv);
    if (!entry.ok()) return entry.status();
    keys.push_back(
        {.job = job, .step = entry->step(), .attempt = entry->attempt()});
  }
  return keys;
}

}  // namespace skrull
