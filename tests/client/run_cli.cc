#include "skrull/tests/client/run_cli.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Environment(
    const std::map<std::string, std::string>& changes) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    const bool is_ours = name == "SKRULL_SERVER" ||
                         name == "SKRULL_TOKEN_FILE" ||
                         name.starts_with("SKRULL_TLS_");
    if (!is_ours && !changes.contains(name)) {
      variables.push_back(variable);
    }
  }
  for (const auto& [name, value] : changes) {
    variables.push_back(name + "=" + value);
  }
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) {
    pointers.push_back(const_cast<char*>(string.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

CliResult RunProgram(const std::vector<std::string>& argv,
                     const std::string& input,
                     const std::map<std::string, std::string>& environment) {
  const TempDir directory;
  const std::string in = directory.path() / "in";
  const std::string out = directory.path() / "out";
  const std::string err = directory.path() / "err";
  WriteFile(in, input);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC;
  ::posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kCreate, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kCreate, 0600);
  // Commands name files as they do from the top of the source tree.
  ::posix_spawn_file_actions_addchdir_np(&actions, SourceDir().c_str());
  const std::vector<std::string> variables = Environment(environment);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr,
                     Pointers(argv).data(), Pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error(argv[0] + ": " + std::strerror(error));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {.exit_code =
              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = ReadFile(out),
          .err = ReadFile(err)};
}

CliResult RunCli(const std::vector<std::string>& arguments,
                 const std::string& input,
                 const std::map<std::string, std::string>& environment) {
  std::vector<std::string> argv = {CliPath()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunProgram(argv, input, environment);
}

std::string CliPath() { return SKRULL_CTL_PATH; }

fs::path SourceDir() { return SKRULL_SOURCE_DIR; }

std::string ExampleJob(const std::string& name) {
  return SourceDir() / "deploy/examples/jobs" / (name + ".textproto");
}

std::vector<std::string> AllLengthsFiles() {
  const char* const shared = std::getenv("SKRULL_SHARED_DATA");
  const fs::path more =
      (shared != nullptr ? fs::path(shared) : SourceDir() / "../shared/data") /
      "lengths";
  std::vector<std::string> files;
  for (const fs::path& folder :
       {SourceDir() / "deploy/examples/lengths", more}) {
    if (!fs::is_directory(folder)) {
      WARN(folder << " does not exist: its lists are not tried");
      continue;
    }
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace skrull::testing
