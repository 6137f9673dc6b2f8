// The reports of the etcd store: see plan_store.h for what each call does.
#ifndef SKRULL_SERVER_ETCD_ETCD_REPORTS_H_
#define SKRULL_SERVER_ETCD_ETCD_REPORTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_lives.h"
#include "skrull/server/job_life.h"
#include "skrull/server/plan_store.h"
#include "skrull/v1/report.pb.h"

namespace skrull {

// Thread-safe: it has no state of its own. All it is given must outlive it.
// Blocks. A report of a step that has a plan costs one request.
class EtcdReports {
 public:
  EtcdReports(EtcdClient* client, const EtcdKeys* keys, EtcdLives* lives)
      : client_(client), keys_(keys), lives_(lives) {}

  absl::Status Put(const JobLife& life, const v1::StepReport& report,
                   int64_t kept_steps);
  absl::StatusOr<std::vector<v1::StepReport>> List(const PlanKey& key,
                                                   int64_t generation,
                                                   int64_t limit);

 private:
  // Stores the report if the step has a plan and the life goes on; else false.
  absl::StatusOr<bool> PutPlanned(const std::string& job, int64_t birth,
                                  const v1::StepReport& report);

  EtcdClient* const client_;
  const EtcdKeys* const keys_;
  EtcdLives* const lives_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_REPORTS_H_
