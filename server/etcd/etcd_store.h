// The store that replicas share: an etcd cluster.
//
// Any number of daemons may use one cluster and prefix at a time, and a cluster
// may hold several stores under prefixes that are not part of each other.
// etcd's transactions alone decide: no lease, lock or clock is needed for
// correctness. What a call acknowledged is on the disks of a majority of the
// members.
//
// A call that fails with kStoreFailed may have been carried out, or may be
// soon: its request can be on its way. The next read tells.
//
// A daemon sees other daemons' changes of jobs by a watch. WhenCurrent reads
// the revision of the last change and waits until the watch has told it, so
// that a daemon that was cut off refuses rather than answers from what it
// remembers.
#ifndef SKRULL_SERVER_ETCD_ETCD_STORE_H_
#define SKRULL_SERVER_ETCD_ETCD_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/server/store.h"

namespace skrull {

// The layout of keys this version reads and writes (etcd_keys.h).
inline constexpr int64_t kEtcdLayoutVersion = 1;

class EtcdStore final : public Store {
 public:
  // Opens the store at `uri` (etcd_uri.h) and lays it out when it is empty.
  // Errors: INVALID_ARGUMENT for another form; kStoreFailed when the cluster
  // does not answer within options.etcd_timeout_seconds, when a file of
  // `options` cannot be read, or when a newer version wrote the store.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(
      const std::string& uri, const StoreOptions& options);
  ~EtcdStore() override;

  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit) override;
  absl::Status Delete(const JobLife& life) override;
  absl::StatusOr<int64_t> Count() override;
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next) override;
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) override;
  void Watch(Observer observer) override;
  void WhenCurrent(std::function<void(const absl::Status&)> done) override;

  absl::StatusOr<PlanRecord> Commit(const PlanRecord& record,
                                    int64_t kept_steps) override;
  absl::StatusOr<std::optional<PlanRecord>> Find(const PlanKey& key,
                                                 int64_t generation) override;
  absl::Status PutReport(const JobLife& life, const v1::StepReport& report,
                         int64_t kept_steps) override;
  absl::StatusOr<std::vector<v1::StepReport>> Reports(const PlanKey& key,
                                                      int64_t generation,
                                                      int64_t limit) override;
  absl::StatusOr<std::vector<PlanKey>> LatestSteps(const std::string& job,
                                                   int64_t generation,
                                                   int64_t limit) override;

 private:
  class Impl;
  explicit EtcdStore(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_STORE_H_
