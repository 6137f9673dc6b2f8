// Runs the real skrullctl.
#ifndef SKRULL_TESTS_CLIENT_RUN_CLI_H_
#define SKRULL_TESTS_CLIENT_RUN_CLI_H_

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace skrull::testing {

struct CliResult {
  int exit_code = -1;  // 128 + the signal that ended it, if one did
  std::string out;
  std::string err;
};

// Runs `skrullctl ARGUMENTS` in the source tree with `input` as its standard
// input. The environment is this process's without SKRULL_SERVER,
// SKRULL_TOKEN_FILE and SKRULL_TLS_*, and with `environment`.
CliResult RunCli(const std::vector<std::string>& arguments,
                 const std::string& input = "",
                 const std::map<std::string, std::string>& environment = {});

// The same for any program.
CliResult RunProgram(
    const std::vector<std::string>& argv, const std::string& input = "",
    const std::map<std::string, std::string>& environment = {});

// The program itself.
std::string CliPath();

// Top of the source tree.
std::filesystem::path SourceDir();

// A job of deploy/examples/jobs, e.g. "qwen2.5-0.5b".
std::string ExampleJob(const std::string& name);

// Every lengths file there is: those of the project, and those of the shared
// data folder ($SKRULL_SHARED_DATA, else ../shared/data beside the source tree)
// where that exists; the test is warned when it does not.
std::vector<std::string> AllLengthsFiles();

// Lines without their ends.
std::vector<std::string> Lines(const std::string& text);

void WriteFile(const std::filesystem::path& path, const std::string& text);
std::string ReadFile(const std::filesystem::path& path);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_CLIENT_RUN_CLI_H_
