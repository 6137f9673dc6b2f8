// Calls an etcd cluster: reads and transactions that fail over between its
// members, and watches.
//
// Every read is linearizable: it sees all that was acknowledged before it
// began, whichever member serves it.
//
// A call that fails may have been carried out all the same, or may be later: a
// request can outlive its caller in the network or in a member's queue. So each
// transaction must be safe to repeat, which comparisons of revisions make it.
#ifndef SKRULL_SERVER_ETCD_ETCD_CLIENT_H_
#define SKRULL_SERVER_ETCD_ETCD_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "etcd/rpc.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "skrull/server/mutex.h"

namespace skrull {

struct EtcdClientOptions {
  // "HOST:PORT" of each member, at least one.
  std::vector<std::string> endpoints;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Of one call, all attempts together; > 0.
  std::chrono::milliseconds timeout{5000};
};

// A stream of changes; ends with the first Read that returns false. Read and
// Finish are called by one thread, Cancel by any.
class EtcdWatchStream {
 public:
  EtcdWatchStream(etcdserverpb::Watch::Stub* stub,
                  const etcdserverpb::WatchCreateRequest& what);

  bool Read(etcdserverpb::WatchResponse* response) {
    return stream_->Read(response);
  }
  // Why it ended. REQUIRES: Read returned false, or Cancel was called.
  grpc::Status Finish() { return stream_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<etcdserverpb::WatchRequest,
                                           etcdserverpb::WatchResponse>>
      stream_;
};

// Thread-safe. Calls block, for up to options.timeout: never on a gRPC thread.
//
// Every error is kStoreFailed and names the members. When the cluster cannot be
// reached for a whole timeout, one call at a time goes on trying, and the
// others fail at once, so that callers do not queue up behind timeouts.
class EtcdClient {
 public:
  explicit EtcdClient(EtcdClientOptions options);

  absl::StatusOr<etcdserverpb::RangeResponse> Range(
      const etcdserverpb::RangeRequest& request) SKRULL_EXCLUDES(mutex_);

  // The answer holds one response for each operation that was done.
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(
      const etcdserverpb::TxnRequest& request) SKRULL_EXCLUDES(mutex_);

  // Opens a watch at a member; at the next one with each call. Does not wait
  // for it.
  std::unique_ptr<EtcdWatchStream> Watch(
      const etcdserverpb::WatchCreateRequest& what) SKRULL_EXCLUDES(mutex_);

  const EtcdClientOptions& options() const { return options_; }

  // kStoreFailed, naming the members.
  absl::Status Failed(const std::string& problem) const;

 private:
  struct Member {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  };
  using Time = std::chrono::steady_clock::time_point;
  // One attempt at a member; fills in the header of its answer.
  using Attempt = std::function<grpc::Status(Member*, grpc::ClientContext*,
                                             etcdserverpb::ResponseHeader*)>;

  absl::Status Call(const Attempt& attempt) SKRULL_EXCLUDES(mutex_);
  // Attempts until one succeeds, fails for good, or time runs out.
  absl::Status CallUntil(Time deadline, const Attempt& attempt)
      SKRULL_EXCLUDES(mutex_);
  // The member to ask, after `failed`, or -1, has not answered.
  int NextMember(int failed) SKRULL_EXCLUDES(mutex_);
  // Waits until then, or until the member is connected, if it is not. The wait
  // does gRPC's input and output: without a thread in it, or in a call, nothing
  // would complete an attempt to connect.
  void WaitAt(int index, Time until);
  // Refuses the answer of another cluster, or of one that lost what was stored:
  // one whose revision is below `floor`, which was seen before the call.
  absl::Status CheckHeader(const etcdserverpb::ResponseHeader& header,
                           int64_t floor) SKRULL_EXCLUDES(mutex_);

  const EtcdClientOptions options_;
  std::vector<Member> members_;  // constant after construction

  Mutex mutex_;
  size_t preferred_ SKRULL_GUARDED_BY(mutex_) = 0;     // answered last
  size_t next_watched_ SKRULL_GUARDED_BY(mutex_) = 0;  // by the next Watch
  uint64_t cluster_id_ SKRULL_GUARDED_BY(mutex_) = 0;  // 0 = none yet
  int64_t revision_ SKRULL_GUARDED_BY(mutex_) = 0;     // highest seen
  // Why the last call that took its whole time failed; OK since one succeeded.
  absl::Status down_ SKRULL_GUARDED_BY(mutex_);
  bool probing_ SKRULL_GUARDED_BY(mutex_) = false;  // a call goes on trying
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_CLIENT_H_
