#include "skrull/server/etcd/etcd_reports.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/server/convert.h"
#include "skrull/server/etcd/etcd_race.h"
#include "skrull/server/etcd/etcd_steps.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_value.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

using Order = EtcdLifeKeys::Order;

}  // namespace

absl::StatusOr<bool> EtcdReports::PutPlanned(const std::string& job,
                                             int64_t birth,
                                             const v1::StepReport& report) {
  const EtcdLifeKeys life = keys_->Life(job, birth);
  EtcdTxn txn;
  txn.IfRevision(keys_->Record(job), birth)
      .IfExists(life.Place(Order::kPlanned, report.step()))
      .Put(life.Report(report.step(), report.attempt(), report.rank()),
           CanonicalBytes(report));
  const absl::StatusOr<etcdserverpb::TxnResponse> done =
      client_->Txn(txn.request());
  if (!done.ok()) return done.status();
  return done->succeeded();
}

absl::Status EtcdReports::Put(const JobLife& life, const v1::StepReport& report,
                              int64_t kept_steps) {
  const std::optional<EtcdLife> recalled =
      lives_->Recall(life.name, life.generation);
  if (recalled && (life.birth == 0 || life.birth == recalled->birth)) {
    const absl::StatusOr<bool> stored =
        PutPlanned(life.name, recalled->birth, report);
    if (!stored.ok()) return stored.status();
    if (*stored) return absl::OkStatus();
  }
  EtcdRace race(client_);
  while (race.Again()) {
    const absl::StatusOr<EtcdLives::Found> found = lives_->Read(
        life.name, life.generation,
        [&](const EtcdLifeKeys& keys, EtcdTxn* txn) {
          EtcdStep::AddReads(keys, Order::kReported, report.step(), txn);
        });
    if (!found.ok()) return found.status();
    const int64_t birth = found->life.birth;
    absl::Status status = CheckBirth(life.name, birth, life.birth);
    if (!status.ok()) return status;
    const EtcdLifeKeys keys = keys_->Life(life.name, birth);
    EtcdStep step(client_, &keys, Order::kReported, report.step());
    status = step.Take(found->answers, 1);
    if (!status.ok()) return status;
    if (step.planned()) {
      const absl::StatusOr<bool> stored = PutPlanned(life.name, birth, report);
      if (!stored.ok()) return stored.status();
      if (*stored) return absl::OkStatus();
      continue;
    }
    EtcdTxn txn;
    txn.IfRevision(keys_->Record(life.name), birth)
        .Put(keys.Report(report.step(), report.attempt(), report.rank()),
             CanonicalBytes(report));
    status = step.AddMove(0, kept_steps, &txn);
    if (!status.ok()) return status;
    const absl::StatusOr<etcdserverpb::TxnResponse> done =
        client_->Txn(txn.request());
    if (!done.ok()) return done.status();
    if (!done->succeeded()) continue;
    step.Prune(RangeAt(*done, done->responses_size() - 1), kept_steps);
    return absl::OkStatus();
  }
  return race.Lost(
      absl::StrCat("step ", report.step(), " of job \"", life.name, "\""));
}

absl::StatusOr<std::vector<v1::StepReport>> EtcdReports::List(
    const PlanKey& key, int64_t generation, int64_t limit) {
  std::vector<v1::StepReport> reports;
  if (limit <= 0) return reports;
  const absl::StatusOr<EtcdLives::Found> found = lives_->Read(
      key.job, generation, [&](const EtcdLifeKeys& life, EtcdTxn* txn) {
        txn->Get(GetPrefix(life.Reports(key.step, key.attempt), limit));
      });
  if (IsGone(found.status())) return reports;
  if (!found.ok()) return found.status();
  for (const etcdserverpb::KeyValue& kv : RangeAt(found->answers, 1).kvs()) {
    absl::StatusOr<v1::StepReport> report =
        ParseValue<v1::StepReport>(*client_, kv);
    if (!report.ok()) return report.status();
    reports.push_back(*std::move(report));
  }
  return reports;
}

}  // namespace skrull
