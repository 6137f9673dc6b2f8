#include "skrull/client/internal/connection.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"

namespace skrull::client_internal {
namespace {

using std::chrono::milliseconds;

// Longest attempt to connect, before the next.
constexpr milliseconds kConnectTimeout{2'000};
// Wait for the answer to a keepalive ping.
constexpr milliseconds kKeepaliveTimeout{10'000};
// Largest answer: a plan of the most lengths a daemon takes is far smaller.
constexpr int kMaxAnswerBytes = 256 << 20;

// The process that first used gRPC through this library; 0 = none did.
std::atomic<pid_t> first_process{0};

absl::Status ForkedError() {
  return MakeStatus(
      absl::StatusCode::kFailedPrecondition,
      "made in another process: gRPC does not survive fork(); use the client "
      "in the process that made it, and start workers with exec or spawn",
      {.reason = "FORKED"});
}

absl::Status CheckRange(const char* field, milliseconds value, milliseconds low,
                        milliseconds high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat("must be in ", low.count(), " .. ", high.count(),
                          " ms, is ", value.count()));
}

absl::Status CheckOptions(const ClientOptions& options) {
  constexpr int kMaxPrefetchDepth = 1024;
  constexpr milliseconds kMaxBackoff{5'000};
  constexpr milliseconds kMinKeepalive{20'000};
  absl::Status status = CheckAddress(options.address);
  status.Update(CheckCredentialOptions(options));
  status.Update(
      CheckRange("timeout", options.timeout, milliseconds(1), kMaxTimeout));
  status.Update(CheckRange("unreachable_after", options.unreachable_after,
                           milliseconds(0), kMaxTimeout));
  status.Update(CheckRange("max_backoff", options.max_backoff, milliseconds(1),
                           kMaxBackoff));
  if (!status.ok()) return status;
  status = CheckRange("initial_backoff", options.initial_backoff,
                      milliseconds(1), options.max_backoff);
  status.Update(
      CheckRange("keepalive", options.keepalive, kMinKeepalive, kMaxTimeout));
  if (!status.ok()) return status;
  if (options.prefetch_depth < 1 ||
      options.prefetch_depth > kMaxPrefetchDepth) {
    return InvalidField("prefetch_depth",
                        absl::StrCat("must be in 1 .. ", kMaxPrefetchDepth,
                                     ", is ", options.prefetch_depth));
  }
  return absl::OkStatus();
}

grpc::ChannelArguments ChannelArgumentsFor(const ClientOptions& options) {
  const auto ms = [](milliseconds value) {
    return static_cast<int>(value.count());
  };
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // No configuration from DNS: what is retried is decided here.
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Two clients of a process do not share a connection's back-off.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
              ms(options.initial_backoff));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, ms(options.max_backoff));
  // Despite its name this is the time a connection attempt may take.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ms(kConnectTimeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ms(options.keepalive));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(kKeepaliveTimeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS,
              options.keepalive_without_calls ? 1 : 0);
  // Else gRPC stops pinging after two pings without data.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  if (!options.tls_server_name.empty()) {
    args.SetSslTargetNameOverride(options.tls_server_name);
  }
  return args;
}

}  // namespace

Backoff::Backoff(const ClientOptions& options)
    : initial_(options.initial_backoff),
      max_(options.max_backoff),
      base_(options.initial_backoff),
      random_(std::random_device{}()) {}

milliseconds Backoff::Next() {
  const double factor = std::uniform_real_distribution<>(0.5, 1.0)(random_);
  const milliseconds wait(static_cast<int64_t>(
      std::ceil(static_cast<double>(base_.count()) * factor)));
  base_ = std::min(base_ * 2, max_);
  return wait;
}

void Backoff::Reset() { base_ = initial_; }

absl::Status StatusFromGrpc(const grpc::Status& status,
                            const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  v1::RpcStatus wire;
  if (!wire.ParseFromString(status.error_details()) || wire.code() == 0) {
    wire.Clear();
  }
  // The call's own code and message are the ones that count.
  wire.set_code(status.error_code());
  wire.set_message(status.error_message());
  absl::Status converted = StatusFromWire(wire);
  if (GetRefusalDetail(converted)) return converted;
  return absl::Status(converted.code(),
                      absl::StrCat(what, ": ", status.error_message()));
}

void CallIdentity::AddTo(grpc::ClientContext* context) const {
  context->AddMetadata("x-request-id", request_id);
  if (!traceparent.empty()) context->AddMetadata("traceparent", traceparent);
}

absl::Status CallIdentity::Name(const absl::Status& status) const {
  if (status.ok()) return status;
  absl::Status named(status.code(), absl::StrCat(status.message(),
                                                 RequestIdSuffix(request_id)));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    named.SetPayload(url, payload);
  });
  named.SetPayload(kRequestIdUrl, absl::Cord(request_id));
  return named;
}

absl::StatusOr<CallIdentity> NewIdentity(const std::string& traceparent) {
  constexpr size_t kMaxBytes = 512;
  if (traceparent.size() > kMaxBytes ||
      !std::all_of(traceparent.begin(), traceparent.end(),
                   [](char c) { return c >= ' ' && c <= '~'; })) {
    return InvalidField("traceparent",
                        absl::StrCat("must be at most ", kMaxBytes,
                                     " printable characters of ASCII"));
  }
  // Random, as many clients make them: of 2^30 calls two share one with a
  // chance of one in 32.
  std::random_device random;
  return CallIdentity{
      .request_id = absl::StrCat(absl::Hex(random(), absl::kZeroPad8),
                                 absl::Hex(random(), absl::kZeroPad8)),
      .traceparent = traceparent};
}

std::optional<milliseconds> RetryDelay(const absl::Status& status) {
  const bool unavailable = absl::IsUnavailable(status);
  if (!unavailable && !absl::IsResourceExhausted(status)) return std::nullopt;
  const std::optional<RefusalDetail> detail = GetRefusalDetail(status);
  if (detail && detail->retry_after_seconds) {
    constexpr double kMaxSeconds =
        std::chrono::duration<double>(kMaxTimeout).count();
    return milliseconds(static_cast<int64_t>(
        1e3 * std::clamp(*detail->retry_after_seconds, 0.0, kMaxSeconds)));
  }
  if (unavailable) return milliseconds(0);
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Create(
    const ClientOptions& options) {
  absl::Status status = CheckOptions(options);
  if (!status.ok()) return status;
  const auto credentials = MakeChannelCredentials(options);
  if (!credentials.ok()) return credentials.status();
  absl::StatusOr<std::unique_ptr<TokenSource>> tokens =
      TokenSource::Create(options);
  if (!tokens.ok()) return tokens.status();
  const pid_t process = ::getpid();
  pid_t first = 0;
  if (!first_process.compare_exchange_strong(first, process) &&
      first != process) {
    return ForkedError();
  }
  return std::shared_ptr<Connection>(
      new Connection(options, process, *credentials, *std::move(tokens)));
}

Connection::Connection(
    const ClientOptions& options, pid_t owner,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    std::unique_ptr<TokenSource> tokens)
    : options_(options),
      owner_(owner),
      tokens_(std::move(tokens)),
      replicas_(options.address, credentials, ChannelArgumentsFor(options)) {}

absl::Status Connection::CheckProcess() const {
  return ::getpid() == owner_ ? absl::OkStatus() : ForkedError();
}

absl::StatusOr<SteadyTime> Connection::Deadline(
    std::optional<milliseconds> timeout) const {
  const milliseconds wanted = timeout.value_or(options_.timeout);
  absl::Status status =
      CheckRange("timeout", wanted, milliseconds(1), kMaxTimeout);
  if (!status.ok()) return status;
  return std::chrono::steady_clock::now() + wanted;
}

void Connection::AddToken(grpc::ClientContext* context) {
  const std::string token = tokens_->Current();
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

absl::Status Connection::Call(
    const std::string& name, SteadyTime deadline,
    const std::string& traceparent,
    const std::function<grpc::Status(grpc::ClientContext*)>& attempt) {
  absl::Status process = CheckProcess();
  if (!process.ok()) return process;
  const absl::StatusOr<CallIdentity> identity = NewIdentity(traceparent);
  if (!identity.ok()) return identity.status();
  const std::string what = absl::StrCat(name, " at ", options_.address);
  Backoff backoff(options_);
  std::optional<SteadyTime> unreachable_since;
  int unavailable = 0;  // attempts in a row
  while (true) {
    const SteadyTime start = std::chrono::steady_clock::now();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + (deadline - start));
    AddToken(&context);
    identity->AddTo(&context);
    const absl::Status status =
        identity->Name(StatusFromGrpc(attempt(&context), what));
    const std::optional<milliseconds> delay = RetryDelay(status);
    if (!delay) return status;

    const SteadyTime now = std::chrono::steady_clock::now();
    if (absl::IsUnavailable(status)) {
      // An attempt that outlived connecting had reached the daemon.
      const bool was_reached = now - start > 2 * kConnectTimeout;
      if (!unreachable_since) unreachable_since = start;
      if (was_reached) unreachable_since = now;
      if (now - *unreachable_since >= options_.unreachable_after) return status;
      // Another replica may be well: all are tried before the first wait.
      if (++unavailable % replicas_.size() != 0 && now < deadline) continue;
    } else {
      unreachable_since.reset();
      unavailable = 0;
    }
    const SteadyTime retry = now + std::max(*delay, backoff.Next());
    if (retry >= deadline) return status;
    if (IsConnected()) {
      std::this_thread::sleep_until(retry);
    } else {
      WaitConnected(retry);
    }
  }
}

}  // namespace skrull::client_internal
