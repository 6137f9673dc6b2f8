#include "skrull/cli/command_tree.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_split.h"

namespace skrull::cli {
namespace {

std::string FirstSentence(const std::string& text) {
  return text.substr(0, text.find_first_of(".:;"));
}

// The values a choice option takes: CLI11 appends "{a,b}" to the type's name.
std::vector<std::string> Choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
}

void AddOptions(const CLI::App& app, Command* command) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool takes_file = type.rfind("FILE", 0) == 0;
    if (option->get_lnames().empty()) {
      command->takes_file =
          command->takes_file || option->get_name() == "INPUT";
      command->choices = Choices(*option);
      continue;
    }
    command->options.push_back(
        {.flag = "--" + option->get_lnames().front(),
         .help = FirstSentence(option->get_description()),
         .takes_value = option->get_items_expected() > 0,
         .takes_file = takes_file,
         .choices = Choices(*option)});
  }
}

void Visit(const CLI::App& app, const std::string& where,
           std::vector<Command>* commands) {
  Command command;
  command.where = where;
  command.help = FirstSentence(app.get_description());
  AddOptions(app, &command);
  const size_t index = commands->size();
  commands->push_back(command);
  for (const CLI::App* child :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    if (child->get_name().empty()) continue;  // a group of options
    (*commands)[index].names.push_back(child->get_name());
    Visit(*child, where + "/" + child->get_name(), commands);
  }
}

}  // namespace

std::vector<Command> CommandTree(const CLI::App& app) {
  std::vector<Command> commands;
  Visit(app, "", &commands);
  return commands;
}

}  // namespace skrull::cli
