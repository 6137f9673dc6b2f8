#include "skrull/server/etcd/etcd_client.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// A member that hangs takes at most this part of a call's time, so that two
// others are tried.
constexpr int kAttemptsPerTimeout = 3;
// Waits between rounds over all members; each times a random factor in [0.5,
// 1].
constexpr milliseconds kFirstWait{20};
constexpr milliseconds kLongestWait{500};
// A silent connection is pinged after this long, by which a watch notices that
// its member is gone. etcd refuses pings more often than every 5 s.
constexpr milliseconds kKeepalive{10'000};
constexpr milliseconds kKeepaliveTimeout{5'000};
constexpr milliseconds kConnectTimeout{2'000};

grpc::ChannelArguments ChannelArguments() {
  const auto ms = [](milliseconds value) {
    return static_cast<int>(value.count());
  };
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(-1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // what is tried is decided here
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, ms(kFirstWait));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, ms(kLongestWait));
  // Despite its name this is the time a connection attempt may take.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ms(kConnectTimeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms(kKeepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(kKeepaliveTimeout));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return args;
}

// Whether another attempt, perhaps at another member, may succeed.
bool MayRetry(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return true;
    default:
      return false;
  }
}

milliseconds Jittered(milliseconds wait) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double factor = std::uniform_real_distribution<>(0.5, 1.0)(random);
  return milliseconds(
      static_cast<int64_t>(static_cast<double>(wait.count()) * factor));
}

}  // namespace

EtcdWatchStream::EtcdWatchStream(etcdserverpb::Watch::Stub* stub,
                                 const etcdserverpb::WatchCreateRequest& what) {
  // A member without a leader ends the watch rather than falling silent.
  context_.AddMetadata("hasleader", "true");
  stream_ = stub->Watch(&context_);
  etcdserverpb::WatchRequest request;
  *request.mutable_create_request() = what;
  // A failure shows in the first Read.
  stream_->Write(request);
}

EtcdClient::EtcdClient(EtcdClientOptions options)
    : options_(std::move(options)) {
  for (const std::string& endpoint : options_.endpoints) {
    Member member;
    member.channel = grpc::CreateCustomChannel(endpoint, options_.credentials,
                                               ChannelArguments());
    member.kv = etcdserverpb::KV::NewStub(member.channel);
    member.watch = etcdserverpb::Watch::NewStub(member.channel);
    members_.push_back(std::move(member));
  }
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request) {
  etcdserverpb::RangeResponse response;
  const absl::Status status = Call([&](Member* member,
                                       grpc::ClientContext* context,
                                       etcdserverpb::ResponseHeader* header) {
    response.Clear();
    const grpc::Status result = member->kv->Range(context, request, &response);
    *header = response.header();
    return result;
  });
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(
    const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  const absl::Status status = Call([&](Member* member,
                                       grpc::ClientContext* context,
                                       etcdserverpb::ResponseHeader* header) {
    response.Clear();
    const grpc::Status result = member->kv->Txn(context, request, &response);
    *header = response.header();
    return result;
  });
  if (!status.ok()) return status;
  const int wanted =
      response.succeeded() ? request.success_size() : request.failure_size();
  if (response.responses_size() != wanted) {
    return Failed(absl::StrCat("an answer to ", wanted, " operations holds ",
                               response.responses_size()));
  }
  return response;
}

std::unique_ptr<EtcdWatchStream> EtcdClient::Watch(
    const etcdserverpb::WatchCreateRequest& what) {
  size_t index = 0;
  {
    MutexLock lock(&mutex_);
    index = next_watched_++ % members_.size();
  }
  return std::make_unique<EtcdWatchStream>(members_[index].watch.get(), what);
}

absl::Status EtcdClient::Failed(const std::string& problem) const {
  return StoreFailed(
      absl::StrCat("etcd://", absl::StrJoin(options_.endpoints, ",")), problem);
}

absl::Status EtcdClient::Call(const Attempt& attempt) {
  bool probes = false;
  {
    MutexLock lock(&mutex_);
    if (!down_.ok()) {
      if (probing_) return down_;
      probing_ = probes = true;
    }
  }
  const Time deadline = steady_clock::now() + options_.timeout;
  const absl::Status status = CallUntil(deadline, attempt);
  MutexLock lock(&mutex_);
  if (probes) probing_ = false;
  if (status.ok()) {
    down_ = absl::OkStatus();
  } else if (steady_clock::now() >= deadline) {
    down_ = status;
  }
  return status;
}

absl::Status EtcdClient::CallUntil(Time deadline, const Attempt& attempt) {
  const milliseconds longest =
      options_.timeout /
      std::min<int>(kAttemptsPerTimeout, static_cast<int>(members_.size()));
  int64_t floor = 0;
  {
    MutexLock lock(&mutex_);
    floor = revision_;
  }
  milliseconds wait = kFirstWait;
  int index = NextMember(-1);
  for (size_t tried = 1;; ++tried) {
    grpc::ClientContext context;
    const Time now = steady_clock::now();
    context.set_deadline(system_clock::now() +
                         std::min<Time::duration>(deadline - now, longest));
    etcdserverpb::ResponseHeader header;
    const grpc::Status result =
        attempt(&members_[static_cast<size_t>(index)], &context, &header);
    if (result.ok()) return CheckHeader(header, floor);
    const std::string problem =
        absl::StrCat(options_.endpoints[static_cast<size_t>(index)], ": ",
                     result.error_message());
    if (!MayRetry(result.error_code())) return Failed(problem);
    index = NextMember(index);
    if (tried % members_.size() != 0 && steady_clock::now() < deadline) {
      continue;
    }
    const Time next = steady_clock::now() + Jittered(wait);
    wait = std::min(2 * wait, kLongestWait);
    WaitAt(index, std::min(next, deadline));
    if (next >= deadline) {
      return Failed(absl::StrCat("not reached within ",
                                 options_.timeout.count(), " ms: ", problem));
    }
  }
}

void EtcdClient::WaitAt(int index, Time until) {
  grpc::Channel& channel = *members_[static_cast<size_t>(index)].channel;
  if (channel.GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
    std::this_thread::sleep_until(until);
  } else {
    channel.WaitForConnected(system_clock::now() +
                             (until - steady_clock::now()));
  }
}

int EtcdClient::NextMember(int failed) {
  MutexLock lock(&mutex_);
  // Of calls that fail together only one moves on, so that the next one is
  // tried before the one after it.
  if (failed >= 0 && preferred_ == static_cast<size_t>(failed)) {
    preferred_ = (preferred_ + 1) % members_.size();
  }
  return static_cast<int>(preferred_);
}

absl::Status EtcdClient::CheckHeader(const etcdserverpb::ResponseHeader& header,
                                     int64_t floor) {
  MutexLock lock(&mutex_);
  if (cluster_id_ == 0) cluster_id_ = header.cluster_id();
  if (header.cluster_id() != cluster_id_) {
    return Failed(absl::StrCat("cluster ", absl::Hex(header.cluster_id()),
                               " answers in place of ", absl::Hex(cluster_id_),
                               "; restart this daemon if etcd was restored"));
  }
  if (header.revision() < floor) {
    return Failed(absl::StrCat("its revision went back from ", floor, " to ",
                               header.revision(),
                               ": it lost what was stored; restart this daemon "
                               "if etcd was restored"));
  }
  revision_ = std::max(revision_, header.revision());
  return absl::OkStatus();
}

}  // namespace skrull
