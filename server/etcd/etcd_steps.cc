#include "skrull/server/etcd/etcd_steps.h"

#include <algorithm>
#include <utility>

#include "skrull/server/convert.h"
#include "skrull/server/etcd/etcd_value.h"

namespace skrull {
namespace {

// Steps that one transaction forgets. Each costs a comparison and two
// operations, of both of which etcd takes 128 by default.
constexpr int64_t kForgetBatch = 8;
constexpr EtcdLifeKeys::Order kOrders[] = {EtcdLifeKeys::Order::kPlanned,
                                           EtcdLifeKeys::Order::kReported};

int64_t Excess(int64_t count, int64_t kept_steps) {
  return count - std::max<int64_t>(1, kept_steps);
}

}  // namespace

void EtcdStep::AddReads(const EtcdLifeKeys& life, Order order, int64_t step,
                        EtcdTxn* txn) {
  for (const Order each : kOrders) txn->Get(GetKey(life.Place(each, step)));
  // One more than are forgotten: the step itself may be among them.
  txn->Get(GetPrefix(life.OrderRoot(order), kForgetBatch + 1));
}

absl::Status EtcdStep::Take(const etcdserverpb::TxnResponse& answers,
                            int first) {
  for (int i = 0; i < 2; ++i) {
    const etcdserverpb::KeyValue* const kv = KeyAt(answers, first + i);
    revisions_[i] = RevisionOf(kv);
    places_[i].reset();
    if (kv == nullptr) continue;
    absl::StatusOr<skrull::etcd::StepValue> place =
        ParseValue<skrull::etcd::StepValue>(*client_, *kv);
    if (!place.ok()) return place.status();
    places_[i] = *std::move(place);
  }
  oldest_ = RangeAt(answers, first + 2);
  revision_ = answers.header().revision();
  return absl::OkStatus();
}

absl::Status EtcdStep::AddMove(int32_t attempt, int64_t kept_steps,
                               EtcdTxn* txn) const {
  const bool plans = order_ == Order::kPlanned;
  skrull::etcd::StepValue place;
  place.set_order_key(life_->OrderEntry(order_, revision_, step_));
  place.set_attempt(!plans       ? 0
                    : places_[0] ? std::max(attempt, places_[0]->attempt())
                                 : attempt);
  skrull::etcd::OrderValue entry;
  entry.set_step(step_);
  entry.set_attempt(place.attempt());
  for (int i = 0; i < 2; ++i) {
    const std::string key = life_->Place(kOrders[i], step_);
    txn->IfRevision(key, revisions_[i]);
    if (places_[i]) txn->Delete(places_[i]->order_key());
    if (kOrders[i] == order_) {
      txn->Put(key, CanonicalBytes(place));
    } else if (places_[i]) {
      txn->Delete(key);
    }
  }
  txn->Put(place.order_key(), CanonicalBytes(entry));
  const bool joins = !places_[plans ? 0 : 1];
  absl::Status status = AddForget(
      oldest_, Excess(oldest_.count() + (joins ? 1 : 0), kept_steps), txn);
  txn->Get(GetPrefix(life_->OrderRoot(order_), kForgetBatch + 1));
  return status;
}

absl::Status EtcdStep::AddForget(const etcdserverpb::RangeResponse& oldest,
                                 int64_t count, EtcdTxn* txn) const {
  count = std::min(count, kForgetBatch);
  for (const etcdserverpb::KeyValue& kv : oldest.kvs()) {
    if (count <= 0) break;
    const absl::StatusOr<skrull::etcd::OrderValue> entry =
        ParseValue<skrull::etcd::OrderValue>(*client_, kv);
    if (!entry.ok()) return entry.status();
    if (entry->step() == step_) continue;
    // As long as the entry is there, the step is where it was.
    txn->IfExists(kv.key()).Delete(kv.key()).DeletePrefix(
        life_->Step(entry->step()));
    --count;
  }
  return absl::OkStatus();
}

void EtcdStep::Prune(etcdserverpb::RangeResponse remain,
                     int64_t kept_steps) const {
  while (Excess(remain.count(), kept_steps) > 0) {
    EtcdTxn txn;
    if (!AddForget(remain, Excess(remain.count(), kept_steps), &txn).ok()) {
      return;
    }
    txn.Get(GetPrefix(life_->OrderRoot(order_), kForgetBatch + 1));
    absl::StatusOr<etcdserverpb::TxnResponse> done =
        client_->Txn(txn.request());
    if (!done.ok() || !done->succeeded()) return;
    remain = RangeAt(*done, done->responses_size() - 1);
  }
}

}  // namespace skrull
