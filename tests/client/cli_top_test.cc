// skrullctl top with a planner whose status the test decides, printed and on a
// terminal.
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

#include "skrull/tests/client/fake_planner.h"
#include "skrull/tests/client/run_cli.h"

namespace skrull {
namespace {

using testing::CliResult;
using testing::FakePlanner;
using testing::Lines;
using testing::RunCli;

// A status that grows by 10 plans and one second a call.
void AnswerWithStatus(FakePlanner& planner) {
  planner.get_status = [calls = 0](const v1::GetStatusRequest& request,
                                   v1::ServerStatus* status) mutable {
    if (request.max_jobs() <= 0) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "max_jobs");
    }
    status->set_version("9.8.7");
    status->mutable_start_time()->set_seconds(1'700'000'000);
    status->mutable_now()->set_seconds(1'700'003'600 + calls);
    status->set_store("etcd");
    status->set_plan_count(100 + 10 * calls);
    v1::JobStatus* job = status->add_jobs();
    job->set_name("run7");
    job->set_plan_count(100 + 10 * calls);
    v1::PlanStatus* plan = job->mutable_last_plan();
    plan->set_job("run7");
    plan->set_policy(v1::POLICY_OPTIMIZED);
    plan->set_predicted_seconds(2.5);
    plan->mutable_planning_time()->set_nanos(2'000'000);
    plan->add_rank_load(0.5f);
    *status->add_plans() = *plan;
    ++calls;
    return grpc::Status::OK;
  };
}

TEST_CASE("skrullctl top: prints once without a terminal", "[cli][top]") {
  FakePlanner planner;
  AnswerWithStatus(planner);
  const CliResult text = RunCli({"top", "--server", planner.address()});
  INFO(text.out << text.err);
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("skrulld 9.8.7 at 127.0.0.1:"));
  CHECK_THAT(text.out, Catch::Contains("up 01:00:00  store etcd"));
  CHECK_THAT(text.out, Catch::Contains("\nrun7 "));
  CHECK(text.out.find('\033') == std::string::npos);

  const CliResult both =
      RunCli({"top", "--once", "--format", "json", "--server",
              planner.address() + ",127.0.0.1:1", "--timeout", "1"});
  CHECK(both.exit_code == 1);
  const auto lines = Lines(both.out);
  REQUIRE(lines.size() == 2);
  const auto json = nlohmann::json::parse(lines[0]);
  CHECK(json["server"] == planner.address());
  CHECK(json["rates"].is_null());
  CHECK(json["status"]["now"].get<double>() -
            json["status"]["start_time"].get<double>() ==
        3601);
  CHECK(json["status"]["jobs"][0]["last_plan"]["policy"] == "POLICY_OPTIMIZED");
  CHECK(json["status"]["plans"][0]["planning_seconds"] == 0.002);
  const auto dead = nlohmann::json::parse(lines[1]);
  CHECK(dead["server"] == "127.0.0.1:1");
  CHECK(dead["error"]["code"] == "UNAVAILABLE");
}

TEST_CASE("skrullctl top: an old daemon, and wrong flags", "[cli][top]") {
  FakePlanner planner;  // UNIMPLEMENTED
  const CliResult old = RunCli({"top", "--server", planner.address()});
  CHECK(old.exit_code == 1);
  CHECK_THAT(old.out, Catch::Contains("UNIMPLEMENTED"));
  CHECK(RunCli({"top", "--interval", "0"}).exit_code == 2);
  CHECK(RunCli({"top", "--once", "--interval", "1"}).exit_code == 2);
  CHECK(RunCli({"top", "--sort", "weight"}).exit_code == 2);
  CHECK(RunCli({"top", "--server", "a,,b"}).exit_code != 0);
}

// skrullctl on a terminal of its own, which this process holds the other end
// of.
class OnTerminal {
 public:
  OnTerminal(std::vector<std::string> arguments, int columns, int rows) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    if (::openpty(&ours_, &theirs_, nullptr, nullptr, &size) != 0) {
      throw std::runtime_error("openpty");
    }
    ::tcgetattr(theirs_, &before_);
    arguments.insert(arguments.begin(), testing::CliPath());
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::login_tty(theirs_);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::unsetenv("NO_COLOR");
      std::vector<char*> raw;
      for (std::string& argument : arguments) raw.push_back(argument.data());
      raw.push_back(nullptr);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
  }
  ~OnTerminal() {
    Signal(SIGKILL);
    Wait();
    ::close(ours_);
    ::close(theirs_);
  }

  // What was written after the text of the call before, up to and with `text`.
  // Throws after a minute.
  std::string ReadUntil(const std::string& text) {
    size_t at = 0;
    while ((at = unread_.find(text)) == std::string::npos) {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(ours_, &set);
      timeval limit = {.tv_sec = 60, .tv_usec = 0};
      char buffer[65536];
      if (::select(ours_ + 1, &set, nullptr, nullptr, &limit) <= 0) {
        throw std::runtime_error("no " + text + " in: " + unread_);
      }
      const ssize_t count = ::read(ours_, buffer, sizeof buffer);
      if (count <= 0) throw std::runtime_error("closed: " + unread_);
      unread_.append(buffer, static_cast<size_t>(count));
    }
    const std::string seen = unread_.substr(0, at + text.size());
    unread_.erase(0, seen.size());
    return seen;
  }

  void Type(char key) { REQUIRE(::write(ours_, &key, 1) == 1); }
  void Resize(int columns, int rows) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    REQUIRE(::ioctl(ours_, TIOCSWINSZ, &size) == 0);
  }
  // Nothing once it was waited for: there is no such process any more, and -1
  // would be all of them.
  void Signal(int number) {
    if (pid_ > 0) ::kill(pid_, number);
  }

  // The exit code, or 128 + the signal that ended it.
  int Wait() {
    if (pid_ > 0) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      exit_code_ =
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      pid_ = -1;
    }
    return exit_code_;
  }
  // The terminal's modes are those it had at first.
  bool ModesAreBack() const {
    termios now = {};
    ::tcgetattr(theirs_, &now);
    return now.c_lflag == before_.c_lflag &&
           now.c_cc[VSUSP] == before_.c_cc[VSUSP];
  }
  bool Echoes() const {
    termios now = {};
    ::tcgetattr(theirs_, &now);
    return (now.c_lflag & ECHO) != 0;
  }

 private:
  std::string unread_;
  int ours_ = -1;
  int theirs_ = -1;
  termios before_ = {};
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

constexpr char kEnter[] = "\033[?1049h\033[?25l";
constexpr char kLeave[] = "\033[?25h\033[?1049l";
constexpr char kDrawn[] = "\033[J";

TEST_CASE("skrullctl top: draws, refreshes and leaves the terminal as it was",
          "[cli][top]") {
  FakePlanner planner;
  AnswerWithStatus(planner);
  // How it ends: a key, or a signal as Ctrl-C sends it.
  const int ending = GENERATE(0, SIGINT, SIGTERM);
  OnTerminal top({"top", "--server", planner.address(), "--interval", "0.1"},
                 120, 20);
  const std::string first = top.ReadUntil("9.8.7");
  CHECK_THAT(first, Catch::Contains(kEnter));
  CHECK_FALSE(top.Echoes());
  top.ReadUntil("(10.0/s)");
  const std::string refreshed = top.ReadUntil(kDrawn);
  CHECK_THAT(refreshed, Catch::Contains("▄"));
  CHECK_THAT(refreshed, Catch::Contains("q quits, s sorts (by recent)"));
  top.Type('s');
  top.ReadUntil("(by name)");
  if (ending == 0) {
    top.Type('q');
  } else {
    top.Signal(ending);
  }
  top.ReadUntil(kLeave);
  CHECK(top.Wait() == 0);
  CHECK(top.ModesAreBack());
}

TEST_CASE("skrullctl top: Ctrl-C on the terminal ends it", "[cli][top]") {
  OnTerminal top({"top", "--server", "127.0.0.1:1"}, 80, 24);
  top.ReadUntil(kDrawn);
  top.Type('\003');
  top.ReadUntil(kLeave);
  CHECK(top.Wait() == 0);
  CHECK(top.ModesAreBack());
}

TEST_CASE("skrullctl top: follows the terminal's size", "[cli][top]") {
  FakePlanner planner;
  AnswerWithStatus(planner);
  OnTerminal top({"top", "--server", planner.address(), "--interval", "3600"},
                 100, 20);
  top.ReadUntil("skrulld 9.8.7");
  top.ReadUntil(kDrawn);
  top.Resize(20, 4);
  const std::string screen = top.ReadUntil(kDrawn);
  const std::string text =
      std::regex_replace(screen, std::regex("\033\\[[?0-9;]*[A-Za-z]"), "");
  const auto lines = Lines(text);
  CHECK(lines.size() == 4);
  for (std::string line : lines) {
    while (line.ends_with('\r')) line.pop_back();
    INFO(line);
    CHECK(line.size() <= 20);
  }
}

}  // namespace
}  // namespace skrull
