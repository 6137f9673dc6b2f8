#include "skrull/cuda/check/sanitizer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "skrull/cuda/profile/measure.h"

extern char** environ;

namespace skrull::check {
namespace {

// What compute-sanitizer exits with if a tool finds errors; the check itself
// exits with 0, 1 or 2.
constexpr int kFoundErrors = 9;
// What timeout(1) exits with.
constexpr int kTimedOut = 124;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
constexpr int kKilled = 137;
// Less is not enough even to start a program on a GPU.
constexpr int kLeastSeconds = 5;

// The exit code of argv, or 128 + its signal; its output goes to *output. 127
// if it cannot be started.
int RunProgram(const std::vector<std::string>& argv, std::string* output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    *output = std::strerror(errno);
    return kNotFound;
  }
  std::vector<char*> raw;
  for (const std::string& argument : argv) {
    raw.push_back(const_cast<char*>(argument.c_str()));
  }
  raw.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, raw[0], &actions, nullptr, raw.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    *output = argv[0] + ": " + std::strerror(error);
    return kNotFound;
  }
  char part[4096];
  for (;;) {
    const ssize_t count = ::read(ends[0], part, sizeof(part));
    if (count > 0) output->append(part, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  ::close(ends[0]);
  int state = 0;
  while (::waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

// The last lines, which name the error, on one line.
std::string EndOf(const std::string& output) {
  constexpr size_t kMost = 400;
  std::string end =
      output.substr(output.size() - std::min(output.size(), kMost));
  while (!end.empty() && end.back() == '\n') end.pop_back();
  std::ranges::replace(end, '\n', '|');
  return end;
}

void AddResult(const std::string& tool, int code, int seconds,
               const std::string& output, SectionWriter* section) {
  if (code == 0) return section->Add(tool, {{"errors", 0}}, "no errors");
  if (code == kNotFound || code == kNotExecutable) {
    return section->Skip(tool,
                         "compute-sanitizer is not there: " + EndOf(output));
  }
  if (code == kTimedOut || code == kKilled) {
    return section->Skip(tool,
                         "not done in " + std::to_string(seconds) + " seconds");
  }
  if (output.find("Device not supported") != std::string::npos) {
    return section->Skip(tool, "compute-sanitizer does not support the device");
  }
  section->Fail(tool, (code == kFoundErrors
                           ? "errors found: "
                           : "exit code " + std::to_string(code) + ": ") +
                          EndOf(output));
}

}  // namespace

void RunSanitizers(const SanitizerOptions& options, SectionWriter* section) {
  const profile::Clock clock = profile::WallClock();
  const double end = clock() + options.seconds;
  const std::vector<std::string> tools = {"memcheck", "racecheck", "initcheck",
                                          "synccheck"};
  for (size_t i = 0; i < tools.size(); ++i) {
    const int seconds = static_cast<int>(
        std::floor((end - clock()) / static_cast<double>(tools.size() - i)));
    if (seconds < kLeastSeconds) {
      section->Skip(tools[i], "no time is left");
      continue;
    }
    std::vector<std::string> argv = {"timeout",
                                     "--kill-after=2",
                                     std::to_string(seconds),
                                     options.sanitizer,
                                     "--tool",
                                     tools[i],
                                     "--error-exitcode",
                                     std::to_string(kFoundErrors)};
    argv.insert(argv.end(), options.program.begin(), options.program.end());
    std::string output;
    const int code = RunProgram(argv, &output);
    AddResult(tools[i], code, seconds, output, section);
  }
}

}  // namespace skrull::check
