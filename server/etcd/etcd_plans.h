// The plans of the etcd store: see plan_store.h for what each call does.
//
// A plan is committed by the transaction that creates its key, if there is none
// and if the life of its job goes on; the loser of a race reads what stands.
// The bytes of a large plan are written before, in chunks under their digest,
// and that transaction makes sure that all chunks are there; those that no plan
// came to use go with their step.
#ifndef SKRULL_SERVER_ETCD_ETCD_PLANS_H_
#define SKRULL_SERVER_ETCD_ETCD_PLANS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "etcd/store_value.pb.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_lives.h"
#include "skrull/server/plan_store.h"

namespace skrull {

// Thread-safe: it has no state of its own. All it is given must outlive it.
// Blocks.
class EtcdPlans {
 public:
  // Most chunks of a plan, each of kMaxEtcdValueBytes: the transaction compares
  // every one, and etcd takes 128 comparisons by default.
  static constexpr int64_t kMaxChunks = 100;

  EtcdPlans(EtcdClient* client, const EtcdKeys* keys, EtcdLives* lives)
      : client_(client), keys_(keys), lives_(lives) {}

  // Also kLimitExceeded, for a plan of more than kMaxChunks chunks.
  absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                    int64_t kept_steps);
  absl::StatusOr<std::optional<PlanRecord>> Find(const PlanKey& key,
                                                 int64_t generation);
  absl::StatusOr<std::vector<PlanKey>> LatestSteps(const std::string& job,
                                                   int64_t generation,
                                                   int64_t limit);

 private:
  // The record whose key holds `kv`, as of `revision`.
  absl::StatusOr<PlanRecord> ReadPlan(const PlanKey& key, int64_t generation,
                                      const EtcdLifeKeys& life,
                                      const etcdserverpb::KeyValue& kv,
                                      int64_t revision);
  // The value for the record's key, without a plan's bytes or chunks that are
  // too much for it.
  absl::StatusOr<skrull::etcd::PlanValue> ValueOf(
      const PlanRecord& record) const;
  // Writes its chunks, in order. False if the life has ended.
  absl::StatusOr<bool> WriteChunks(const PlanRecord& record, int64_t birth,
                                   const skrull::etcd::PlanValue& value);

  EtcdClient* const client_;
  const EtcdKeys* const keys_;
  EtcdLives* const lives_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_PLANS_H_
