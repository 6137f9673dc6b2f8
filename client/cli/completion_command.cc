#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "skrull/cli/command_tree.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"

namespace skrull::cli {

void AddCompletionCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes skrullctl's command line");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "Shell the script is for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer("Example:\n  skrullctl completion bash");
  const CLI::App* const root = &app;
  command->callback([shell, root, exit_code] {
    const std::vector<Command> commands = CommandTree(*root);
    const std::string script = *shell == "bash"  ? BashCompletion(commands)
                               : *shell == "zsh" ? ZshCompletion(commands)
                                                 : FishCompletion(commands);
    *exit_code = WriteOutput(script) ? kExitOk : kExitUsage;
  });
}

}  // namespace skrull::cli
