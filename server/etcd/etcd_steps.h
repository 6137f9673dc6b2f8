// The order of a job's steps in the etcd store, by which the oldest ones are
// forgotten: those with a plan by their last commit, those that have reports
// alone by their last report.
//
// A step's place in the order is the revision that etcd had before it took it:
// of two calls of which one ended before the other began, the later one has the
// higher revision. So no counter has to be fought for.
//
// All of this goes into the transactions of callers, which compare what was
// read: a caller that loses a race reads again.
#ifndef SKRULL_SERVER_ETCD_ETCD_STEPS_H_
#define SKRULL_SERVER_ETCD_ETCD_STEPS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "etcd/store_value.pb.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_txn.h"

namespace skrull {

// One step of one life, as it is about to become the newest of `order`. Not
// thread-safe. `client` and `life` must outlive the object.
class EtcdStep {
 public:
  using Order = EtcdLifeKeys::Order;

  EtcdStep(EtcdClient* client, const EtcdLifeKeys* life, Order order,
           int64_t step)
      : client_(client), life_(life), order_(order), step_(step) {}

  // Adds the reads that Take needs: kReads answers.
  static constexpr int kReads = 3;
  static void AddReads(const EtcdLifeKeys& life, Order order, int64_t step,
                       EtcdTxn* txn);
  // Takes in those answers, from index `first` on. Errors: kStoreFailed.
  absl::Status Take(const etcdserverpb::TxnResponse& answers, int first);

  // Whether it has a plan.
  bool planned() const { return places_[0].has_value(); }

  // Makes it the newest of its order, with a plan at `attempt` if that is the
  // planned steps', and forgets the oldest ones, as far as one transaction can,
  // so that `kept_steps` remain. Ends with a read of what remains, for Prune.
  // Errors: kStoreFailed.
  absl::Status AddMove(int32_t attempt, int64_t kept_steps, EtcdTxn* txn) const;

  // Forgets what is still too much in `remain`, which is the last answer of the
  // transaction of AddMove: others that moved steps at the same time, or a
  // lower limit than before, leave some. What fails here is left to the next
  // commit.
  void Prune(etcdserverpb::RangeResponse remain, int64_t kept_steps) const;

 private:
  // Adds the deletion of the first steps of `oldest`, at most `count`, but not
  // of this one.
  absl::Status AddForget(const etcdserverpb::RangeResponse& oldest,
                         int64_t count, EtcdTxn* txn) const;

  EtcdClient* const client_;
  const EtcdLifeKeys* const life_;
  const Order order_;
  const int64_t step_;

  // Its place among the planned and among the reported steps, at most one of
  // which it has, and the revisions of both.
  std::optional<skrull::etcd::StepValue> places_[2];
  int64_t revisions_[2] = {0, 0};
  etcdserverpb::RangeResponse oldest_;  // of its order, with their count
  int64_t revision_ = 0;                // of the read
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_STEPS_H_
