// skrull_load: puts load on a daemon and measures what comes back. --help lists
// the flags, docs/benchmarks.md says how to read the figures.
//
// Exit status: 0; 1 if a call never ended, or the daemon could not be reached;
// 2 for wrong usage.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "skrull/tests/bench/load/driver.h"
#include "skrull/tests/bench/load/load_options.h"
#include "skrull/tests/bench/load/load_report.h"
#include "skrull/tests/bench/load/recorder.h"
#include "skrull/tests/bench/load/workload.h"
#include "skrull/tests/support/process_usage.h"

namespace skrull::load {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

void AddMixFlags(CLI::App* app, LoadOptions* options) {
  const CLI::Range weight(0.0, 1e9);
  const char* const names[kMethods] = {"--plan", "--rank", "--report",
                                       "--stream"};
  const char* const help[kMethods] = {
      "Weight of PlanBatch, each of a new step",
      "Weight of GetRankPlan, of a committed step",
      "Weight of ReportStep, of a committed step",
      "Weight of batches on one StreamPlans call a connection"};
  for (size_t i = 0; i < kMethods; ++i) {
    app->add_option(names[i], options->weights[i], help[i])
        ->capture_default_str()
        ->check(weight);
  }
}

void AddFlags(CLI::App* app, LoadOptions* o) {
  const CLI::Range count(1, 1'000'000'000);
  const auto add = [app](const char* name, auto& member, const char* help) {
    return app->add_option(name, member, help)->capture_default_str();
  };
  add("--address", o->address, "Of the daemon");
  add("--mode", o->mode,
      "open: calls are due at a fixed rate, whatever becomes of them. closed: "
      "a fixed number is under way")
      ->check(CLI::IsMember({"open", "closed"}));
  add("--rate", o->rate, "Open: calls a second")->check(CLI::Range(0.01, 1e6));
  add("--in-flight", o->in_flight, "Closed: calls under way")->check(count);
  add("--max-in-flight", o->max_in_flight,
      "Open: a call that is due while so many are under way is not made, but "
      "counted; 0: all are made")
      ->check(CLI::Range(0, 1'000'000'000));
  add("--seconds", o->seconds, "That are measured")
      ->check(CLI::Range(0.1, 1e6));
  add("--warm-up", o->warm_up, "Seconds before that")
      ->check(CLI::Range(0.0, 1e6));
  add("--jobs", o->jobs, "Jobs, registered at the start")
      ->check(CLI::Range(1, 100000));
  add("--job-prefix", o->job_prefix,
      "Of their names; another one for each load that runs at once");
  add("--connections", o->connections, "TCP connections")
      ->check(CLI::Range(1, 100000));
  AddMixFlags(app, o);
  add("--lengths", o->lengths_file,
      "File of lengths, one a line; default log-normal ones");
  add("--log-mean", o->log_mean, "Of the log-normal, in ln(tokens)");
  add("--log-deviation", o->log_deviation, "The same")
      ->check(CLI::Range(0.001, 10.0));
  add("--batch-size", o->batch_size, "Lengths in a batch")->check(count);
  add("--big-batch-size", o->big_batch_size, "The same, of a big one")
      ->check(count);
  add("--big-share", o->big_share, "Share of big batches")
      ->check(CLI::Range(0.0, 1.0));
  add("--dp-size", o->dp_size, "Of the jobs")->check(CLI::Range(1, 65536));
  add("--cp-size", o->cp_size, "Of the jobs")->check(CLI::Range(1, 65536));
  add("--policy", o->policy, "Of the jobs, e.g. POLICY_SKRULL");
  add("--timeout-seconds", o->timeout_seconds, "Deadline of a call")
      ->check(CLI::Range(0.001, 1e6));
  add("--seed", o->seed, "Of all that is drawn");
  add("--pid", o->pid, "The daemon's: its memory is reported");
  add("--json", o->json, "File to write the figures to");
}

// Samples the daemon's memory each second until destroyed.
class MemoryWatch {
 public:
  explicit MemoryWatch(int64_t pid) {
    if (pid == 0) return;
    thread_ = std::jthread([this, pid](const std::stop_token& stop) {
      const Time start = steady_clock::now();
      while (!stop.stop_requested()) {
        const duration<double> elapsed = steady_clock::now() - start;
        samples_.emplace_back(
            elapsed.count(),
            testing::UsageOf(static_cast<pid_t>(pid)).resident_kib);
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    });
  }

  // Ends the watch. Call it once.
  std::vector<std::pair<double, double>> Take() {
    thread_ = std::jthread();
    return std::move(samples_);
  }

 private:
  std::vector<std::pair<double, double>> samples_;
  std::jthread thread_;  // last: it uses the rest
};

int Run(const LoadOptions& options) {
  Workload workload(options);
  const auto seconds = [](double count) {
    return duration_cast<steady_clock::duration>(duration<double>(count));
  };
  Recorder recorder;
  Driver driver(options, &workload, &recorder);
  MemoryWatch memory(options.pid);
  const Time begin = steady_clock::now();
  const Time measured = begin + seconds(options.warm_up);
  const Time end = measured + seconds(options.seconds);
  recorder.RecordFrom(measured);
  if (options.mode == "open") {
    driver.RunOpen(begin, end);
  } else {
    driver.RunClosed(end);
  }
  LoadReport report;
  report.options = options;
  report.seconds = options.seconds;
  report.stuck_calls = driver.WaitForCalls();
  report.totals = recorder.Take();
  report.resident_kib = memory.Take();
  std::fputs(TableOf(report).c_str(), stdout);
  std::fflush(stdout);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << JsonOf(report);
    if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
  }
  // A call that never ended may still touch the driver.
  if (report.stuck_calls > 0) std::_Exit(kExitFailure);
  return 0;
}

}  // namespace
}  // namespace skrull::load

int main(int argc, char** argv) {
  using skrull::load::kExitFailure;
  using skrull::load::kExitUsage;
  skrull::load::LoadOptions options;
  CLI::App app("Puts load on a skrulld and measures what comes back.");
  skrull::load::AddFlags(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitUsage;
  }
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  try {
    return skrull::load::Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "skrull_load: %s\n", error.what());
    return kExitFailure;
  }
}
