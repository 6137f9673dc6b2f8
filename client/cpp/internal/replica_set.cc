#include "skrull/client/internal/replica_set.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "skrull/client/internal/wire.h"

namespace skrull::client_internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// While no replica is connected each is waited for this long in turn.
constexpr milliseconds kConnectSlice{50};

// FNV-1a: the same on every machine and in every version.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  // Its last bytes alone hardly reach the high bits.
  hash ^= hash >> 32;
  return hash * 0x9e3779b97f4a7c15;
}

}  // namespace

std::vector<std::string> SplitAddress(const std::string& address) {
  return absl::StrSplit(address, ',');
}

absl::Status CheckAddress(const std::string& address) {
  if (address.empty()) return InvalidField("address", "empty");
  std::set<std::string> seen;
  for (const std::string& one : SplitAddress(address)) {
    if (one.empty()) {
      return InvalidField("address", "an address between commas is empty");
    }
    if (!seen.insert(one).second) {
      return InvalidField("address", absl::StrCat("names ", one, " twice"));
    }
  }
  return absl::OkStatus();
}

ReplicaSet::ReplicaSet(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments)
    : next_(std::random_device{}()) {
  grpc::ChannelArguments balanced = arguments;
  balanced.SetLoadBalancingPolicyName("round_robin");
  for (const std::string& one : SplitAddress(address)) {
    const bool may_be_many = one.rfind("dns:", 0) == 0;
    Replica replica;
    replica.address = one;
    replica.channel = grpc::CreateCustomChannel(
        one, credentials, may_be_many ? balanced : arguments);
    replica.stub = v1::PlannerService::NewStub(replica.channel);
    replicas_.push_back(std::move(replica));
  }
}

size_t ReplicaSet::Take() {
  const size_t first = next_.fetch_add(1);
  const size_t count = replicas_.size();
  size_t taken = count;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (first + i) % count;
    const grpc_connectivity_state state =
        replicas_[index].channel->GetState(/*try_to_connect=*/true);
    if (taken == count && state == GRPC_CHANNEL_READY) taken = index;
  }
  return taken == count ? first % count : taken;
}

size_t ReplicaSet::IndexForKey(const std::string& key, int choice) const {
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    order.emplace_back(Hash(absl::StrCat(key, "\n", replicas_[i].address)), i);
  }
  std::sort(order.begin(), order.end());
  return order[static_cast<size_t>(choice) % order.size()].second;
}

bool ReplicaSet::IsConnected() {
  bool connected = false;
  for (const Replica& replica : replicas_) {
    connected |= replica.channel->GetState(/*try_to_connect=*/true) ==
                 GRPC_CHANNEL_READY;
  }
  return connected;
}

bool ReplicaSet::WaitConnected(steady_clock::time_point until) {
  for (size_t i = 0;; ++i) {
    const auto now = steady_clock::now();
    const auto slice = replicas_.size() == 1 ? until - now
                                             : std::min<steady_clock::duration>(
                                                   kConnectSlice, until - now);
    if (replicas_[i % replicas_.size()].channel->WaitForConnected(
            system_clock::now() + slice)) {
      return true;
    }
    if (IsConnected()) return true;
    if (now + slice >= until) return false;
  }
}

}  // namespace skrull::client_internal
