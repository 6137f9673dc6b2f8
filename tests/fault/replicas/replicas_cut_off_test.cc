// A replica that its clients reach, and that reaches etcd no more. Packets to
// etcd vanish, as in a broken network; nothing is refused or closed.
#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <stdexcept>

#include "skrull/tests/fault/replicas/replicas.h"

namespace skrull::testing {
namespace {

using std::chrono::seconds;

constexpr char kEtcdHost[] = "10.77.1.1";
constexpr char kReplica[] = "10.77.0.2:7419";

int Run(const std::vector<std::string>& argv) {
  Process process(argv);
  const int code = process.Wait();
  if (code != 0) std::cout << argv[0] << ": " << process.Output();
  return code;
}

void MustRun(const std::vector<std::string>& argv) {
  if (Run(argv) != 0) throw std::runtime_error("failed: " + argv.back());
}

// A network namespace beside that of this process, and the link between both.
// This process moves to one of its own first, so that nothing of the machine's
// network changes.
class Network {
 public:
  // False if this process may not make networks.
  static bool Enter() {
    return ::geteuid() == 0 && ::unshare(CLONE_NEWNET) == 0 &&
           Run({"ip", "link", "set", "lo", "up"}) == 0 &&
           Run({"ip", "netns", "add", Name()}) == 0;
  }

  Network() {
    MustRun({"ip", "link", "add", "skr0", "type", "veth", "peer", "name",
             "skr1", "netns", Name()});
    MustRun({"ip", "addr", "add", "10.77.0.1/24", "dev", "skr0"});
    MustRun({"ip", "link", "set", "skr0", "up"});
    MustRun({"ip", "-n", Name(), "addr", "add", "10.77.0.2/24", "dev", "skr1"});
    MustRun({"ip", "-n", Name(), "link", "set", "skr1", "up"});
    MustRun({"ip", "-n", Name(), "link", "set", "lo", "up"});
    MustRun(
        {"ip", "-n", Name(), "route", "add", "default", "via", "10.77.0.1"});
    Heal();
  }
  ~Network() { Run({"ip", "netns", "del", Name()}); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Packets to etcd's address are for nobody.
  void Cut() { MustRun({"ip", "addr", "del", Address(), "dev", "lo"}); }
  void Heal() { MustRun({"ip", "addr", "add", Address(), "dev", "lo"}); }

  static std::string Name() {
    return "skrull-test-" + std::to_string(::getpid());
  }

 private:
  static std::string Address() { return std::string(kEtcdHost) + "/32"; }
};

absl::Status Plan(PlannerClient* client, int64_t step, int lengths_variant,
                  std::string* bytes) {
  const auto plan =
      client->PlanBatch({.job = kJob,
                         .generation = 1,
                         .step = step,
                         .lengths = LengthsOf(step, lengths_variant)});
  if (plan.ok()) *bytes = plan->plan_bytes;
  return plan.status();
}

TEST_CASE("Replicas: one that is cut off from etcd refuses until it is back",
          "[fault][replicas]") {
  if (!Network::Enter()) {
    std::cout << "skipped: this process may not make network namespaces\n";
    return;
  }
  Network network;
  Etcd etcd({.other_host = kEtcdHost});
  Daemon well({"--store=" + etcd.uri("cut")});
  const Process cut_off(
      {"ip", "netns", "exec", Network::Name(), DaemonPath(),
       std::string("--listen_address=") + kReplica, "--metrics_address=",
       "--allow_plaintext=true", "--etcd_timeout_seconds=2",
       "--store=etcd://" + etcd.endpoints(kEtcdHost) + "/cut"});
  const auto client = ClientOf(well.address());
  const auto inside = ClientOf(kReplica);
  const auto either = ClientOf(well.address() + "," + kReplica);
  std::string bytes;

  REQUIRE(client->CreateJob(kJob, SpecText(0)).ok());
  REQUIRE(Plan(inside.get(), 1, 0, &bytes) == absl::OkStatus());
  CHECK(bytes == PlanBytes(0, 1, 0));

  network.Cut();
  // Neither what it remembers nor what it could plan by itself.
  const auto hasty = PlannerClient::Create({.address = kReplica,
                                            .timeout = seconds(60),
                                            .unreachable_after = seconds(0)})
                         .value();
  const auto must_refuse = [&](const absl::Status& status) {
    CAPTURE(status);
    CHECK(absl::IsUnavailable(status));
    CHECK(RefusalOf(status) == "STORE_FAILED");
  };
  must_refuse(Plan(hasty.get(), 1, 0, &bytes));
  REQUIRE(client->DeleteJob(kJob).ok());
  REQUIRE(client->CreateJob(kJob, SpecText(1)).ok());
  REQUIRE(Plan(client.get(), 3, 0, &bytes) == absl::OkStatus());
  must_refuse(Plan(hasty.get(), 1, 0, &bytes));
  must_refuse(Plan(hasty.get(), 3, 1, &bytes));
  must_refuse(hasty->GetJob(kJob).status());
  must_refuse(
      hasty->GetRankPlan({.job = kJob, .generation = 1, .step = 1, .rank = 0})
          .status());
  // Who knows another replica is not held up.
  for (int64_t step = 10; step < 16; ++step) {
    CHECK(Plan(either.get(), step, 0, &bytes) == absl::OkStatus());
    CHECK(bytes == PlanBytes(1, step, 0));
  }

  network.Heal();
  CHECK(Plan(inside.get(), 1, 0, &bytes) == absl::OkStatus());
  CHECK(bytes == PlanBytes(1, 1, 0));
  CHECK(RefusalOf(Plan(inside.get(), 3, 1, &bytes)) == "PLAN_CONFLICT");
  CHECK(Plan(inside.get(), 3, 0, &bytes) == absl::OkStatus());
  CHECK(bytes == PlanBytes(1, 3, 0));
}

}  // namespace
}  // namespace skrull::testing
