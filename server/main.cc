// skrulld: plans global batches of registered jobs, for trainers.
//
// Exit status: 0 after a stop by SIGTERM or SIGINT; 1 if it cannot start; 2 for
// wrong options.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/stubs/logging.h"
#include "skrull/server/clock.h"
#include "skrull/server/metrics/metrics_doc.h"
#include "skrull/server/options.h"
#include "skrull/server/planner_server.h"
#include "skrull/server/service_manager.h"
#include "skrull/server/version.h"

namespace skrull {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "skrulld: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// A connection a rank needs more files than the soft limit usually allows.
void RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// A manager that hears nothing acts on that; this says why in the log.
void Notify(const char* state) {
  const absl::Status status = NotifyServiceManager(state);
  if (!status.ok()) Fail(status, kExitFailure);
}

int Run(const ServerOptions& options) {
  RaiseFileLimit();
  // Before any thread starts, so that all of them inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // Protocol Buffers would write a line to stderr for each malformed string a
  // client sends; the refusal already says what was wrong.
  google::protobuf::SetLogHandler(nullptr);

  absl::StatusOr<std::unique_ptr<PlannerServer>> server =
      PlannerServer::Create(options, Clock::Real());
  if (!server.ok()) return Fail(server.status(), kExitFailure);
  const absl::Status started = (*server)->Start();
  if (!started.ok()) return Fail(started, kExitFailure);
  std::printf("skrulld listening on %s, metrics on %s, store %s\n",
              (*server)->address().c_str(),
              (*server)->metrics_address().c_str(), options.store.c_str());
  std::fflush(stdout);
  Notify("READY=1");

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  Notify("STOPPING=1");
  // A planning thread that is past the limit works for nobody, and what it
  // could commit is one transaction: nothing is lost by not waiting for it.
  if (!(*server)->Stop()) std::_Exit(kExitOk);
  return kExitOk;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerCommand> command =
      ParseServerCommandLine(arguments);
  if (!command.ok()) return Fail(command.status(), kExitUsage);
  switch (command->action) {
    case ServerCommand::Action::kRun:
      return Run(command->options);
    case ServerCommand::Action::kHelp:
      std::fputs(ServerHelpText().c_str(), stdout);
      return kExitOk;
    case ServerCommand::Action::kVersion:
      std::printf("skrulld %s\n", kSkrullVersion);
      return kExitOk;
    case ServerCommand::Action::kOptionsMarkdown:
      std::fputs(OptionsMarkdown().c_str(), stdout);
      return kExitOk;
    case ServerCommand::Action::kMetricsMarkdown:
      std::fputs(MetricsMarkdown().c_str(), stdout);
      return kExitOk;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  // The distribution's Abseil would abort the process on a lock-order
  // inversion, gRPC's own included, in release builds as well.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return skrull::Main(std::vector<std::string>(argv + 1, argv + argc));
}
