#include <CLI/CLI.hpp>
#include <memory>

#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"

namespace skrull::cli {

void AddVersionCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("version", "Print the version");
  command->footer("Example:\n  skrullctl version");
  command->callback([exit_code] {
    *exit_code =
        WriteOutput("skrullctl " SKRULL_VERSION "\n") ? kExitOk : kExitUsage;
  });
}

std::unique_ptr<CLI::App> MakeApp(int* exit_code) {
  auto app = std::make_unique<CLI::App>(
      "Plans global batches of long-context training jobs, checks plans, and "
      "manages the jobs of a skrulld daemon.",
      "skrullctl");
  app->get_formatter()->column_width(34);
  app->require_subcommand(1);
  app->footer(
      "Exit codes: 0 done; 1 some batch was refused, some plan is illegal, or "
      "the daemon\nrefused or could not be reached; 2 usage, or an input that "
      "cannot be read.\n"
      "Environment: SKRULL_SERVER, HOST:PORT of the daemon; SKRULL_TLS_CA, "
      "SKRULL_TLS_CERT,\nSKRULL_TLS_KEY and SKRULL_TOKEN_FILE, files for "
      "--tls-ca and so on.");
  AddJobCommands(*app, exit_code);
  AddHealthCommand(*app, exit_code);
  AddPlanCommand(*app, exit_code);
  AddCompareCommand(*app, exit_code);
  AddSimulateCommand(*app, exit_code);
  AddCheckCommand(*app, exit_code);
  AddTraceCommand(*app, exit_code);
  AddReportCommand(*app, exit_code);
  AddLengthsCommand(*app, exit_code);
  AddTopCommand(*app, exit_code);
  AddDebugBundleCommand(*app, exit_code);
  AddCompletionCommand(*app, exit_code);
  AddTokenCommand(*app, exit_code);
  AddVersionCommand(*app, exit_code);
  return app;
}

int Run(int argc, char** argv) {
  int exit_code = kExitUsage;
  const std::unique_ptr<CLI::App> app = MakeApp(&exit_code);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Prints help to stdout, or the error to stderr; 0 only for help.
    return app->exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace skrull::cli
