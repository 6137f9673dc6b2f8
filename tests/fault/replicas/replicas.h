// Three daemons that share an etcd, the trainers that use them, and what their
// plans must be.
#ifndef SKRULL_TESTS_FAULT_REPLICAS_REPLICAS_H_
#define SKRULL_TESTS_FAULT_REPLICAS_REPLICAS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skrull/client/planner_client.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/tests/support/etcd.h"

namespace skrull::testing {

inline constexpr char kJob[] = "run";

// The text of a job; each variant, 0 and 1, plans otherwise.
std::string SpecText(int variant);

// Lengths of a step; each variant, 0 and 1, has others.
std::vector<int64_t> LengthsOf(int64_t step, int variant);

// The bytes of the plan of such a job and such lengths, made in this process.
std::string PlanBytes(int spec_variant, int64_t step, int lengths_variant);

// A client of `address`, which may name several daemons.
std::unique_ptr<PlannerClient> ClientOf(
    const std::string& address,
    std::chrono::milliseconds timeout = std::chrono::seconds(60));

// The reason of a refusal, "PLAN_CONFLICT"; empty if there is none.
std::string RefusalOf(const absl::Status& status);

// Not thread-safe.
class Replicas {
 public:
  static constexpr int kCount = 3;

  // Starts etcd and kCount daemons, and registers job kJob as variant 0.
  Replicas();

  Etcd& etcd() { return etcd_; }
  const std::string& address(int replica) const;
  // Of all, with commas.
  std::string addresses() const;
  Daemon& daemon(int replica);

  // SIGKILL; Start starts the daemon again at its address.
  void Kill(int replica);
  void Start(int replica);

 private:
  Etcd etcd_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_FAULT_REPLICAS_REPLICAS_H_
