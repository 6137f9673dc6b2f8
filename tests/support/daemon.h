// Starts, stops and kills real skrulld processes for tests.
//
// Example:
//   Daemon daemon;                                  // store in memory
//   auto channel = grpc::CreateChannel(daemon.address(), ...);
//   ...
//   daemon.Terminate();
//   REQUIRE(daemon.Wait() == 0);
#ifndef SKRULL_TESTS_SUPPORT_DAEMON_H_
#define SKRULL_TESTS_SUPPORT_DAEMON_H_

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace skrull::testing {

// A directory of its own under the system's temporary one, removed with all it
// holds by the destructor.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A program that was started and its output. Not thread-safe.
class Process {
 public:
  // Starts `argv[0]` with stdout and stderr going to one file. Throws
  // std::runtime_error if it cannot be started.
  explicit Process(const std::vector<std::string>& argv);
  // Kills (SIGKILL) and reaps the process if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Everything it wrote so far, to stdout and to stderr.
  std::string Output() const;
  // SIGTERM; does not wait.
  void Terminate();
  // SIGKILL, and waits until the process is gone.
  void Kill();
  // Waits for the end; the exit code, or 128 + the signal that ended it.
  int Wait();
  // True until the process has ended.
  bool Running();

 private:
  TempDir directory_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
  bool reaped_ = false;
};

// A daemon that accepts calls.
class Daemon {
 public:
  // Starts skrulld on free loopback ports with its store in memory; later
  // `flags` override these. Returns once it accepts calls. Throws
  // std::runtime_error with the daemon's output if it ends first, or is not
  // ready within 60 s.
  explicit Daemon(const std::vector<std::string>& flags = {});

  // "127.0.0.1:PORT" of the service and of the metrics.
  const std::string& address() const { return address_; }
  const std::string& metrics_address() const { return metrics_address_; }

  pid_t pid() const { return process_.pid(); }
  std::string Output() const { return process_.Output(); }
  void Terminate() { process_.Terminate(); }
  void Kill() { process_.Kill(); }
  int Wait() { return process_.Wait(); }
  bool Running() { return process_.Running(); }

  // The text of its metrics page. Throws std::runtime_error if it does not
  // answer 200.
  std::string Scrape() const;

  // The value of one sample, e.g. `skrull_plans_total{policy="POLICY_SKRULL"}`;
  // throws std::runtime_error if the page has none.
  double Metric(const std::string& sample) const;

 private:
  Process process_;
  std::string address_;
  std::string metrics_address_;
};

// Path of the skrulld under test.
std::string DaemonPath();

// The whole answer to `method` on http://ADDRESS/PATH, headers and body; what
// came of it if the connection broke.
std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& method = "GET");

// The body of http://ADDRESS/PATH. Throws std::runtime_error unless the answer
// is 200.
std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SUPPORT_DAEMON_H_
