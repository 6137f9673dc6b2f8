// skrull_fault KILLS [SEED]: a daemon with an SQLite store, killed with SIGKILL
// so many times under the load of clients that change jobs, plan, fetch and
// report.
//
// It is killed after a random number of answers, and now and then again at a
// random moment of its start, recovery included. Whatever happens, all answers
// must agree (history.h). Prints what it did. Exit 0: all agreed; 1: not, with
// what did not.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "skrull/server/store.h"
#include "skrull/tests/fault/fault_client.h"
#include "skrull/tests/fault/history.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClients = 4;
// Answers from start to kill: up to so many.
constexpr int kMostAnswers = 150;
// After each start, plans that are asked for again before anything else.
constexpr size_t kAskedAgain = 20;
// The store is looked into once in so many kills: that takes longer and longer.
constexpr int kKillsPerCheck = 10;

// A free port below those that the system gives to outgoing connections: a
// client that connects to nobody could else become its own peer, and take the
// port that the daemon is about to come back to.
int FreePort(std::mt19937_64* engine) {
  int first_given = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_given;
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  for (int i = 0; i < 1000; ++i) {
    const int port =
        1024 + static_cast<int>((*engine)() %
                                static_cast<uint64_t>(first_given - 1024));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
        0) {
      close(file);
      return port;
    }
  }
  close(file);
  throw std::runtime_error("no free port");
}

class FaultTest {
 public:
  explicit FaultTest(uint64_t seed)
      : engine_(seed),
        address_("127.0.0.1:" + std::to_string(FreePort(&engine_))),
        flags_{"--listen_address=" + address_,
               "--metrics_address=", "--store=sqlite:" + file(),
               "--kept_steps=100000", "--log_level=error"},
        checker_(kClients, engine_(), address_, &history_, &answers_) {
    Start();
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(std::make_unique<FaultClient>(i, engine_(), address_,
                                                       &history_, &answers_));
      threads_.emplace_back(
          [client = clients_.back().get()](const std::stop_token& stop) {
            client->Run(stop);
          });
    }
  }

  void KillOnce() {
    WaitForAnswers(static_cast<int64_t>(engine_() % kMostAnswers));
    if (!daemon_->Running()) {
      throw std::runtime_error("the daemon ended by itself: " +
                               daemon_->Output());
    }
    daemon_->Kill();
    ++kills_;
    if (kills_ < next_check_) return;
    next_check_ = kills_ + kKillsPerCheck;
    CheckStore();
  }

  // Kills it again, while it starts: before or while it recovers, or when it is
  // almost ready.
  void KillStarting() {
    std::vector<std::string> arguments = {DaemonPath()};
    arguments.insert(arguments.end(), flags_.begin(), flags_.end());
    Process process(arguments);
    std::this_thread::sleep_for(std::chrono::duration<double>(
        start_seconds_ * static_cast<double>(engine_() % 1200) / 1000));
    if (!process.Running()) {
      throw std::runtime_error("the daemon did not start: " + process.Output());
    }
    process.Kill();
    ++kills_;
    ++start_kills_;
  }

  void Start() {
    const auto begin = Clock::now();
    daemon_ = std::make_unique<Daemon>(flags_);
    start_seconds_ =
        std::chrono::duration<double>(Clock::now() - begin).count();
    checker_.AskAgain(history_.AllPlanned(kAskedAgain));
  }

  // Lets the clients end, and looks at everything once more.
  void Finish() {
    threads_.clear();  // joins
    checker_.AskAgain(history_.AllPlanned());
    daemon_->Kill();
    CheckStore();
    history_.CheckPlans();
  }

  int64_t kills() const { return kills_; }

  // True if all answers agreed.
  bool Report(double seconds) {
    const History::Counts counts = history_.counts();
    std::printf(
        "%lld kills (%lld while it started) in %.0f s: %lld answers, %lld "
        "lives of jobs, %lld plans, %lld conflicts, %lld shares, %lld reports, "
        "%lld epochs; %lld facts found in the store\n",
        static_cast<long long>(kills_), static_cast<long long>(start_kills_),
        seconds, static_cast<long long>(answers_.load()),
        static_cast<long long>(counts.lives),
        static_cast<long long>(counts.plans),
        static_cast<long long>(counts.conflicts),
        static_cast<long long>(counts.shares),
        static_cast<long long>(counts.reports),
        static_cast<long long>(counts.epochs),
        static_cast<long long>(counts.stored));
    std::fflush(stdout);
    for (const std::string& wrong : history_.wrongs()) {
      std::fprintf(stderr, "skrull_fault: %s\n", wrong.c_str());
    }
    return history_.wrongs().empty();
  }

 private:
  std::string file() const {
    return (directory_.path() / "skrull.db").string();
  }

  // Of answers that arrive from now on.
  void WaitForAnswers(int64_t count) {
    const int64_t enough = answers_ + count;
    const auto limit = Clock::now() + std::chrono::minutes(2);
    while (answers_ < enough && daemon_->Running()) {
      if (Clock::now() > limit) throw std::runtime_error("calls are stuck");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  // Looks into a copy, so that the daemon recovers the file that it left.
  void CheckStore() {
    const TempDir copy;
    const std::string path = (copy.path() / "skrull.db").string();
    std::filesystem::copy_file(file(), path);
    if (std::filesystem::exists(file() + "-wal")) {
      std::filesystem::copy_file(file() + "-wal", path + "-wal");
    }
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStore("sqlite:" + path);
    if (!store.ok()) throw std::runtime_error(store.status().ToString());
    history_.CheckStore(store->get());
  }

  std::mt19937_64 engine_;
  const TempDir directory_;
  const std::string address_;
  const std::vector<std::string> flags_;
  History history_;
  std::atomic<int64_t> answers_ = 0;
  FaultClient checker_;
  std::unique_ptr<Daemon> daemon_;
  double start_seconds_ = 0;
  int64_t kills_ = 0;
  int64_t start_kills_ = 0;
  int64_t next_check_ = kKillsPerCheck;
  std::vector<std::unique_ptr<FaultClient>> clients_;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

int Main(int64_t kills, uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  try {
    std::mt19937_64 engine(seed + 1);
    FaultTest test(seed);
    const auto begin = Clock::now();
    while (test.kills() < kills) {
      test.KillOnce();
      while (test.kills() < kills && engine() % 3 == 0) test.KillStarting();
      test.Start();
    }
    test.Finish();
    const std::chrono::duration<double> spent = Clock::now() - begin;
    return test.Report(spent.count()) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "skrull_fault: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace skrull::testing

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: skrull_fault KILLS [SEED]\n");
    return 2;
  }
  return skrull::testing::Main(std::stoll(argv[1]),
                               argc == 3 ? std::stoull(argv[2]) : 1);
}
