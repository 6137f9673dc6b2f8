// skrull_soak SECONDS [SEED]: a daemon with an SQLite store under kill -9.
//
// Plans random steps through the client and, every few steps, kills the daemon
// and starts it again on the same port. Whatever happens, each plan must have
// the bytes that the in-process planner makes; a step that was committed before
// a kill must come back the same, and be refused for other lengths. Prints what
// it did and the daemon's memory. Exit 0: all held; 1: not.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "skrull/client/local_planner.h"
#include "skrull/client/planner_client.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

constexpr char kJob[] = "soak";
constexpr char kSpec[] =
    "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 } "
    "parallelism { dp_size: 4 cp_size: 8 } "
    "memory { bucket_size_tokens: 26624 } "
    "cost { intra_node { seconds_per_collective: 4e-5 } }";
constexpr int64_t kRecentSteps = 500;  // fewer than a daemon keeps

void Require(bool held, const std::string& what) {
  if (!held) throw std::runtime_error(what);
}

template <typename T>
T Take(absl::StatusOr<T> result, const std::string& what) {
  Require(result.ok(), what + ": " + result.status().ToString());
  return *std::move(result);
}

// Resident memory of a process, KiB; 0 if unknown.
int64_t ResidentKib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  }
  return 0;
}

class Soak {
 public:
  explicit Soak(uint64_t seed)
      : engine_(seed),
        local_(Take(LocalPlanner::Create(kSpec), "in-process planner")) {
    Start("127.0.0.1:0");
    address_ = daemon_->address();
    client_ = Take(PlannerClient::Create({.address = address_}), "client");
    Take(client_->CreateJob(kJob, kSpec), "CreateJob");
  }

  void Step() {
    const int64_t step = next_step_++;
    const std::vector<int64_t> lengths = RandomLengths();
    committed_[step] = lengths;
    committed_.erase(step - kRecentSteps);
    CheckStep(step, lengths);
    CheckStep(AnyStep(), std::nullopt);
    if (Below(20) == 0) CheckConflict(AnyStep());
    if (Below(50) == 0) KillAndRestart();
  }

  void Report(double seconds) const {
    std::printf(
        "%.0f s: %lld steps planned, %lld kills, daemon %lld KiB resident\n",
        seconds, static_cast<long long>(next_step_),
        static_cast<long long>(kills_),
        static_cast<long long>(ResidentKib(daemon_->pid())));
    std::fflush(stdout);
  }

  void Stop() {
    daemon_->Terminate();
    Require(daemon_->Wait() == 0, "SIGTERM ends the daemon with 0");
  }

 private:
  void Start(const std::string& address) {
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{
        "--listen_address=" + address,
        "--store=sqlite:" + (directory_.path() / "skrull.db").string()});
  }

  void KillAndRestart() {
    daemon_->Kill();
    Start(address_);
    ++kills_;
  }

  int64_t Below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine_);
  }

  std::vector<int64_t> RandomLengths() {
    std::lognormal_distribution<double> distribution(6.0, 1.5);
    std::vector<int64_t> lengths(static_cast<size_t>(1 + Below(300)));
    for (int64_t& length : lengths) {
      length = 1 + static_cast<int64_t>(distribution(engine_)) % 200000;
    }
    return lengths;
  }

  int64_t AnyStep() {
    auto at = committed_.begin();
    std::advance(at, Below(static_cast<int64_t>(committed_.size())));
    return at->first;
  }

  // Plans `step`, for the first time or again, and compares.
  void CheckStep(int64_t step, std::optional<std::vector<int64_t>> lengths) {
    const std::vector<int64_t>& batch = lengths ? *lengths : committed_[step];
    const std::string what = "step " + std::to_string(step);
    const PlanResult remote =
        Take(client_->PlanBatch({.job = kJob, .step = step, .lengths = batch}),
             what);
    const PlanResult own = Take(
        local_->PlanBatch({.job = kJob, .step = step, .lengths = batch}), what);
    Require(remote.plan_bytes == own.plan_bytes,
            what + ": the daemon's plan is not the in-process planner's");
    Require(remote.committed, what + ": not committed");
  }

  // Other lengths under a committed key are refused.
  void CheckConflict(int64_t step) {
    std::vector<int64_t> lengths = committed_[step];
    lengths.push_back(1);
    const auto result =
        client_->PlanBatch({.job = kJob, .step = step, .lengths = lengths});
    Require(absl::IsFailedPrecondition(result.status()),
            "step " + std::to_string(step) + ": a conflict is refused");
  }

  std::mt19937_64 engine_;
  std::unique_ptr<LocalPlanner> local_;
  TempDir directory_;
  std::string address_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<PlannerClient> client_;
  std::map<int64_t, std::vector<int64_t>> committed_;
  int64_t next_step_ = 0;
  int64_t kills_ = 0;
};

int Main(int64_t seconds, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  try {
    Soak soak(seed);
    const auto begin = Clock::now();
    const auto elapsed = [&begin] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    double reported = 0;
    while (elapsed() < static_cast<double>(seconds)) {
      soak.Step();
      if (elapsed() - reported < 10) continue;
      reported = elapsed();
      soak.Report(reported);
    }
    soak.Report(elapsed());
    soak.Stop();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "skrull_soak: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace skrull::testing

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: skrull_soak SECONDS [SEED]\n");
    return 2;
  }
  return skrull::testing::Main(std::stoll(argv[1]),
                               argc == 3 ? std::stoull(argv[2]) : 1);
}
