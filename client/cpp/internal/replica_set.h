// The channels to the replicas of a daemon, one for each of its addresses, and
// which of them a call takes. Not for users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_REPLICA_SET_H_
#define SKRULL_CLIENT_CPP_INTERNAL_REPLICA_SET_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::client_internal {

// The addresses that `address` names: one, or several that commas part.
std::vector<std::string> SplitAddress(const std::string& address);

// INVALID_ARGUMENT unless `address` is one address, or several that commas
// part, none of them empty or named twice.
absl::Status CheckAddress(const std::string& address);

// Thread-safe.
class ReplicaSet {
 public:
  // REQUIRES: CheckAddress(address).ok(). Does not connect. Names that
  // "dns:///" resolves to several addresses are balanced over as well.
  ReplicaSet(const std::string& address,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials,
             const grpc::ChannelArguments& arguments);

  int size() const { return static_cast<int>(replicas_.size()); }

  // The stub for a call: of the replicas that are connected each in turn, from
  // one on that differs between clients. Those that are not are told to connect
  // meanwhile; while none is, they are taken in turn.
  v1::PlannerService::Stub& Next() { return *replicas_[Take()].stub; }
  // The channel of the same.
  const std::shared_ptr<grpc::Channel>& NextChannel() {
    return replicas_[Take()].channel;
  }

  // The stub of the `choice`-th, from 0, of the replicas in an order that
  // depends on `key` and the set of addresses alone: the same for all who wait
  // for each other at one replica.
  v1::PlannerService::Stub& ForKey(const std::string& key, int choice) {
    return *replicas_[IndexForKey(key, choice)].stub;
  }
  // Its address.
  const std::string& AddressForKey(const std::string& key, int choice) const {
    return replicas_[IndexForKey(key, choice)].address;
  }

  // True while one is connected. Asks for connections to all.
  bool IsConnected();

  // Waits for a connection; false when there is none by `until`. The wait does
  // gRPC's input and output: without a thread in it, or in a call, nothing
  // would complete an attempt to connect.
  bool WaitConnected(std::chrono::steady_clock::time_point until);

 private:
  struct Replica {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::PlannerService::Stub> stub;
  };

  // Index of the replica for the next call.
  size_t Take();
  size_t IndexForKey(const std::string& key, int choice) const;

  std::vector<Replica> replicas_;  // constant after construction
  std::atomic<size_t> next_;
};

}  // namespace skrull::client_internal

#endif  // SKRULL_CLIENT_CPP_INTERNAL_REPLICA_SET_H_
