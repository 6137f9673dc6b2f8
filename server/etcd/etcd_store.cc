#include "skrull/server/etcd/etcd_store.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_jobs.h"
#include "skrull/server/etcd/etcd_keys.h"
#include "skrull/server/etcd/etcd_lives.h"
#include "skrull/server/etcd/etcd_plans.h"
#include "skrull/server/etcd/etcd_reports.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_uri.h"
#include "skrull/server/etcd/etcd_watcher.h"
#include "skrull/server/etcd/freshness_door.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

// The file's bytes; empty for no path.
absl::StatusOr<std::string> ReadPem(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) return StoreFailed(path, "cannot be read");
  return text.str();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFrom(
    const StoreOptions& options) {
  if (options.etcd_ca_file.empty()) return grpc::InsecureChannelCredentials();
  absl::StatusOr<std::string> ca = ReadPem(options.etcd_ca_file);
  if (!ca.ok()) return ca.status();
  absl::StatusOr<std::string> certificate = ReadPem(options.etcd_cert_file);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadPem(options.etcd_key_file);
  if (!key.ok()) return key.status();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = *std::move(ca);
  ssl.pem_private_key = *std::move(key);
  ssl.pem_cert_chain = *std::move(certificate);
  return grpc::SslCredentials(ssl);
}

}  // namespace

class EtcdStore::Impl {
 public:
  Impl(EtcdClientOptions options, const std::string& prefix)
      : client_(std::move(options)),
        keys_(prefix),
        lives_(&client_, &keys_),
        jobs_(&client_, &keys_),
        plans_(&client_, &keys_, &lives_),
        reports_(&client_, &keys_, &lives_) {}

  // Lays an empty store out; refuses one of a newer version.
  absl::Status CheckVersion() {
    EtcdTxn layout;
    layout.IfRevision(keys_.Version(), 0)
        .Put(keys_.Version(), absl::StrCat(kEtcdLayoutVersion));
    const absl::StatusOr<etcdserverpb::TxnResponse> laid_out =
        client_.Txn(layout.request());
    if (!laid_out.ok()) return laid_out.status();
    const absl::StatusOr<etcdserverpb::RangeResponse> found =
        client_.Range(GetKey(keys_.Version()));
    if (!found.ok()) return found.status();
    const std::string text =
        found->kvs_size() == 0 ? "" : found->kvs(0).value();
    int64_t version = 0;
    if (!absl::SimpleAtoi(text, &version) || version < 1) {
      return client_.Failed(absl::StrCat("key ", keys_.Version(),
                                         " is no version: another program "
                                         "uses this prefix"));
    }
    if (version > kEtcdLayoutVersion) {
      return client_.Failed(absl::StrCat("written by a newer version (layout ",
                                         version, ", this daemon knows ",
                                         kEtcdLayoutVersion, ")"));
    }
    // What a daemon that died left; it is out of reach in any case.
    (void)jobs_.CollectTrash();
    return absl::OkStatus();
  }

  EtcdJobs& jobs() { return jobs_; }
  EtcdPlans& plans() { return plans_; }
  EtcdReports& reports() { return reports_; }

  void Watch(JobStore::Observer observer) {
    door_.reset();
    watcher_.reset();
    if (observer == nullptr) return;
    watcher_ =
        std::make_unique<EtcdWatcher>(&client_, &keys_, std::move(observer));
    door_ = std::make_unique<FreshnessDoor>([this] { return CheckCurrent(); });
  }

  void WhenCurrent(std::function<void(const absl::Status&)> done) {
    if (door_ == nullptr) return done(absl::OkStatus());  // nobody is told
    door_->Enter(std::move(done));
  }

 private:
  absl::Status CheckCurrent() {
    const auto deadline =
        std::chrono::steady_clock::now() + client_.options().timeout;
    etcdserverpb::RangeRequest changed = GetKey(keys_.Changed());
    changed.set_keys_only(true);
    const absl::StatusOr<etcdserverpb::RangeResponse> last =
        client_.Range(changed);
    if (!last.ok()) return last.status();
    const int64_t revision =
        last->kvs_size() == 0 ? 0 : last->kvs(0).mod_revision();
    return watcher_->WaitUntil(revision, deadline);
  }

  EtcdClient client_;
  const EtcdKeys keys_;
  EtcdLives lives_;
  EtcdJobs jobs_;
  EtcdPlans plans_;
  EtcdReports reports_;
  // Null before Watch. The door's threads use the watcher.
  std::unique_ptr<EtcdWatcher> watcher_;
  std::unique_ptr<FreshnessDoor> door_;
};

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Open(
    const std::string& uri, const StoreOptions& options) {
  absl::StatusOr<EtcdLocation> location = ParseEtcdUri(uri);
  if (!location.ok()) return location.status();
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials =
      CredentialsFrom(options);
  if (!credentials.ok()) return credentials.status();
  EtcdClientOptions client;
  client.endpoints = std::move(location->endpoints);
  client.credentials = *std::move(credentials);
  client.timeout = std::chrono::milliseconds(
      static_cast<int64_t>(options.etcd_timeout_seconds * 1e3));
  auto impl = std::make_unique<Impl>(std::move(client), location->prefix);
  absl::Status status = impl->CheckVersion();
  if (!status.ok()) return status;
  return std::unique_ptr<EtcdStore>(new EtcdStore(std::move(impl)));
}

EtcdStore::EtcdStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EtcdStore::~EtcdStore() = default;

absl::StatusOr<JobRecord> EtcdStore::Create(const JobRecord& wanted,
                                            const CreateTerms& terms) {
  return impl_->jobs().Create(wanted, terms);
}

absl::StatusOr<JobRecord> EtcdStore::Get(const std::string& name) {
  return impl_->jobs().Get(name);
}

absl::StatusOr<std::vector<JobRecord>> EtcdStore::List(const std::string& after,
                                                       int64_t limit) {
  return impl_->jobs().List(after, limit);
}

absl::Status EtcdStore::Delete(const JobLife& life) {
  return impl_->jobs().Delete(life);
}

absl::StatusOr<int64_t> EtcdStore::Count() { return impl_->jobs().Count(); }

absl::StatusOr<JobRecord> EtcdStore::Advance(const JobLife& life,
                                             const v1::Calibration& next) {
  return impl_->jobs().Advance(life, next);
}

absl::StatusOr<std::vector<v1::Calibration>> EtcdStore::Calibrations(
    const std::string& name, int64_t generation) {
  return impl_->jobs().Calibrations(name, generation);
}

void EtcdStore::Watch(Observer observer) { impl_->Watch(std::move(observer)); }

void EtcdStore::WhenCurrent(std::function<void(const absl::Status&)> done) {
  impl_->WhenCurrent(std::move(done));
}

absl::StatusOr<PlanRecord> EtcdStore::Commit(const PlanRecord& record,
                                             int64_t kept_steps) {
  return impl_->plans().Commit(record, kept_steps);
}

absl::StatusOr<std::optional<PlanRecord>> EtcdStore::Find(const PlanKey& key,
                                                          int64_t generation) {
  return impl_->plans().Find(key, generation);
}

absl::Status EtcdStore::PutReport(const JobLife& life,
                                  const v1::StepReport& report,
                                  int64_t kept_steps) {
  return impl_->reports().Put(life, report, kept_steps);
}

absl::StatusOr<std::vector<v1::StepReport>> EtcdStore::Reports(
    const PlanKey& key, int64_t generation, int64_t limit) {
  return impl_->reports().List(key, generation, limit);
}

absl::StatusOr<std::vector<PlanKey>> EtcdStore::LatestSteps(
    const std::string& job, int64_t generation, int64_t limit) {
  return impl_->plans().LatestSteps(job, generation, limit);
}

}  // namespace skrull
