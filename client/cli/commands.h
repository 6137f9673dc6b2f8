// The commands of skrullctl. Each function adds one to the tree of commands
// and, when the command line names it, runs it and sets `*exit_code` (io.h).
#ifndef SKRULL_CLIENT_CLI_COMMANDS_H_
#define SKRULL_CLIENT_CLI_COMMANDS_H_

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace skrull::cli {

void AddJobCommands(CLI::App& app, int* exit_code);
void AddHealthCommand(CLI::App& app, int* exit_code);
void AddPlanCommand(CLI::App& app, int* exit_code);
void AddCompareCommand(CLI::App& app, int* exit_code);
void AddSimulateCommand(CLI::App& app, int* exit_code);
void AddCheckCommand(CLI::App& app, int* exit_code);
void AddTraceCommand(CLI::App& app, int* exit_code);
void AddReportCommand(CLI::App& app, int* exit_code);
void AddLengthsCommand(CLI::App& app, int* exit_code);
void AddTopCommand(CLI::App& app, int* exit_code);
void AddDebugBundleCommand(CLI::App& app, int* exit_code);
void AddCompletionCommand(CLI::App& app, int* exit_code);
void AddTokenCommand(CLI::App& app, int* exit_code);
void AddVersionCommand(CLI::App& app, int* exit_code);

// All of the above under `skrullctl`.
std::unique_ptr<CLI::App> MakeApp(int* exit_code);

// Parses the command line, runs it, and returns the exit code.
int Run(int argc, char** argv);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_COMMANDS_H_
