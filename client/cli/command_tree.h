// The tree of commands as shell completion needs it.
#ifndef SKRULL_CLIENT_CLI_COMMAND_TREE_H_
#define SKRULL_CLIENT_CLI_COMMAND_TREE_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace skrull::cli {

struct CommandOption {
  std::string flag;  // "--lengths"
  std::string help;  // first sentence
  bool takes_value = false;
  bool takes_file = false;
  std::vector<std::string> choices;  // of the value; empty = anything
};

struct Command {
  std::string where;  // "" for skrullctl itself, "/job/create" and so on
  std::string help;
  std::vector<std::string> names;  // of commands below it
  std::vector<CommandOption> options;
  bool takes_file = false;           // its argument is a path
  std::vector<std::string> choices;  // of its argument
};

// Every command, parents before children, in the order of --help.
std::vector<Command> CommandTree(const CLI::App& app);

std::string BashCompletion(const std::vector<Command>& commands);
std::string ZshCompletion(const std::vector<Command>& commands);
std::string FishCompletion(const std::vector<Command>& commands);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_COMMAND_TREE_H_
