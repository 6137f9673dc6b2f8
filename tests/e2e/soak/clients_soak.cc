// skrull_clients_soak SECONDS: a daemon and clients that come, go, give up,
// fall silent and are killed.
//
// Every call must end, with an answer or a refusal that its client has to
// expect. When all clients have left, the daemon must be as it was: the gauges
// of waiting calls at 0, its files and threads back to where they were, its
// memory flat; it then plans a batch and stops cleanly. Prints figures as it
// goes. Exit 0: all held; 1: not.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/tests/e2e/soak/bad_peers.h"
#include "skrull/tests/e2e/soak/soak_clients.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/tests/support/process_usage.h"

namespace skrull::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// Of the daemon: a silent connection is closed after both. On a busy machine a
// good client may take seconds to answer a ping.
constexpr double kKeepaliveSeconds = 2;
constexpr double kKeepaliveTimeoutSeconds = 10;
// gRPC looks at its timers when it has time.
constexpr double kSlackSeconds = 20;
// No client's call has a later deadline.
constexpr seconds kLastCall{60};
// Memory is measured from when caches and pools have filled: a third of the
// run, and ten minutes are enough.
constexpr double kWarmUpShare = 1.0 / 3;
constexpr double kMostWarmUpSeconds = 600;
// Memory swings by 8 MiB, over minutes, with how many clients are there: what
// is left of a leak is a floor that rises. Judged are the lowest points of the
// first and the last third of what follows the warm-up. A leak of 1 KiB in each
// hundredth call would be twice as steep at 200 calls a second. Shorter runs
// are all warm-up, and are not judged.
constexpr double kMostSlopeKibPerMinute = 64;
constexpr double kJudgedSeconds = 600;

// gRPC's executor starts up to two threads a core when it needs them, and keeps
// them.
const auto kExecutorThreads =
    static_cast<int64_t>(2 * std::thread::hardware_concurrency());

// The daemon's resident memory at a time of the run.
struct Sample {
  double at = 0;  // seconds
  double kib = 0;
};

constexpr const char* kGauges[] = {"skrull_planning_queue_depth",
                                   "skrull_rank_waits",
                                   "skrull_rendezvous_waits"};

void Require(bool held, const std::string& what) {
  if (!held) throw std::runtime_error(what);
}

bool Eventually(seconds time, const std::function<bool()>& condition) {
  const auto limit = Clock::now() + time;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

class ClientsSoak {
 public:
  explicit ClientsSoak(double length)
      : length_(length),
        daemon_({"--store=sqlite:" + (directory_.path() / "skrull.db").string(),
                 "--kept_steps=64", "--log_level=error",
                 "--keepalive_seconds=2", "--keepalive_timeout_seconds=10",
                 // So that some are refused.
                 "--planning_queue=16", "--max_queue_seconds=0.2"}) {}

  void Run(const std::string& program) {
    // What a daemon opens and starts once is there after one client.
    RunFor(0.5, {[this](const std::stop_token& stop) {
             RunTrainer(Client(0), stop);
           }});
    before_ = UsageOf(daemon_.pid());
    std::vector<Task> tasks;
    for (int id = 1; id <= 3; ++id) {
      tasks.push_back([this, id](const std::stop_token& stop) {
        RunTrainer(Client(id), stop);
      });
    }
    tasks.push_back(
        [this](const std::stop_token& stop) { RunCanceller(Client(1), stop); });
    tasks.push_back([this](const std::stop_token& stop) {
      RunSlowReader(Client(1), stop);
    });
    tasks.push_back([this](const std::stop_token& stop) {
      RunHalfOpen(Client(1),
                  kKeepaliveSeconds + kKeepaliveTimeoutSeconds + kSlackSeconds,
                  stop);
    });
    tasks.push_back([this, program](const std::stop_token& stop) {
      RunKilled(Client(1), program, stop);
    });
    RunFor(length_, tasks);
    Check();
  }

 private:
  using Task = std::function<void(const std::stop_token&)>;

  SoakClient Client(int id) {
    return {.address = daemon_.address(), .id = id, .log = &log_};
  }

  // Runs the tasks side by side and watches the daemon. Ends the process if a
  // task does not end after its last call: nothing can be joined then.
  void RunFor(double length, const std::vector<Task>& tasks) {
    std::atomic<int> running = static_cast<int>(tasks.size());
    std::vector<std::jthread> threads;
    for (const Task& task : tasks) {
      threads.emplace_back([&running, &task](const std::stop_token& stop) {
        task(stop);
        --running;
      });
    }
    Watch(length);
    for (std::jthread& thread : threads) thread.request_stop();
    if (!Eventually(kLastCall + seconds(10), [&] { return running == 0; })) {
      std::fprintf(stderr, "clients_soak: STUCK, a call has not ended\n");
      std::_Exit(1);
    }
  }

  void Watch(double length) {
    const auto begin = Clock::now();
    const double interval = std::clamp(length / 60, 0.2, 10.0);
    double told = 0;
    while (true) {
      const double at =
          std::chrono::duration<double>(Clock::now() - begin).count();
      Require(daemon_.Running(), "the daemon ended: " + daemon_.Output());
      CheckClients();
      if (length >= length_) {
        const ProcessUsage usage = UsageOf(daemon_.pid());
        memory_.push_back(
            {.at = at, .kib = static_cast<double>(usage.resident_kib)});
        if (at - told > 60) Tell(told = at, usage);
      }
      if (at >= length) return;
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::min(interval, length - at)));
    }
  }

  void Tell(double at, const ProcessUsage& usage) {
    std::printf("%5.0f s: %lld KiB resident, %lld threads, %lld files; calls",
                at, static_cast<long long>(usage.resident_kib),
                static_cast<long long>(usage.threads),
                static_cast<long long>(usage.open_files));
    for (const auto& [code, count] : log_.calls()) {
      std::printf(" code %d: %lld", code, static_cast<long long>(count));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  void CheckClients() {
    const std::vector<std::string> failures = log_.failures();
    for (const std::string& failure : failures) {
      std::fprintf(stderr, "clients_soak: %s\n", failure.c_str());
    }
    Require(failures.empty(), "a client was failed");
  }

  void Check() {
    CheckClients();
    // Connections that fell silent are found out by pings.
    const seconds patience{
        static_cast<int>(kKeepaliveSeconds + kKeepaliveTimeoutSeconds) + 20};
    for (const char* gauge : kGauges) {
      Require(Eventually(patience, [&] { return daemon_.Metric(gauge) == 0; }),
              std::string(gauge) + " does not come back to 0");
    }
    ProcessUsage after;
    const bool back = Eventually(patience, [&] {
      after = UsageOf(daemon_.pid());
      return after.open_files <= before_.open_files &&
             after.threads <= before_.threads + kExecutorThreads;
    });
    Tell(length_, after);
    Require(back,
            "files or threads are left: " + std::to_string(before_.open_files) +
                " files and " + std::to_string(before_.threads) +
                " threads before the clients came");
    CheckMemory();
    // It still serves.
    RunFor(0.2, {[this](const std::stop_token& stop) {
             RunTrainer(Client(9), stop);
           }});
    daemon_.Terminate();
    Require(daemon_.Wait() == 0, "SIGTERM ends the daemon with 0");
  }

  void CheckMemory() {
    if (length_ < kJudgedSeconds) return;
    const double warm_up = std::min(length_ * kWarmUpShare, kMostWarmUpSeconds);
    const double third = (length_ - warm_up) / 3;
    const Sample first = Lowest(warm_up, warm_up + third);
    const Sample last = Lowest(length_ - third, length_);
    const double slope = (last.kib - first.kib) / (last.at - first.at) * 60;
    std::printf(
        "memory's floor: %.0f KiB at %.0f s, %.0f KiB at %.0f s: %+.1f KiB/min "
        "(bound %.0f)\n",
        first.kib, first.at, last.kib, last.at, slope, kMostSlopeKibPerMinute);
    Require(slope <= kMostSlopeKibPerMinute, "memory grows");
  }

  // REQUIRES: a sample in [begin, end).
  Sample Lowest(double begin, double end) const {
    Sample lowest{.at = begin, .kib = std::numeric_limits<double>::infinity()};
    for (const Sample& sample : memory_) {
      if (sample.at >= begin && sample.at < end && sample.kib < lowest.kib) {
        lowest = sample;
      }
    }
    return lowest;
  }

  const double length_;
  TempDir directory_;
  SoakLog log_;
  Daemon daemon_;
  ProcessUsage before_;
  std::vector<Sample> memory_;
};

int Main(double length) {
  try {
    ClientsSoak soak(length);
    soak.Run(std::filesystem::read_symlink("/proc/self/exe").string());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "clients_soak: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace skrull::testing

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "--victim") {
    skrull::testing::RunVictim(arguments[1], std::stoi(arguments[2]));
  }
  if (arguments.size() != 1) {
    std::fprintf(stderr, "usage: skrull_clients_soak SECONDS\n");
    return 2;
  }
  return skrull::testing::Main(std::stod(arguments[0]));
}
