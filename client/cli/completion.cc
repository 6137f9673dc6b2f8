// Scripts that complete skrullctl's command line. All three find the command
// that the words so far name, by the same walk down the tree, and offer what
// may follow.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "skrull/cli/command_tree.h"

namespace skrull::cli {
namespace {

// "/job|/job/create|...": the places that a word can lead to.
std::string Places(const std::vector<Command>& commands,
                   const std::string& separator) {
  std::vector<std::string> places;
  for (const Command& command : commands) {
    if (!command.where.empty()) places.push_back(command.where);
  }
  return absl::StrJoin(places, separator);
}

std::string HelpOf(const std::vector<Command>& commands,
                   const std::string& where) {
  for (const Command& command : commands) {
    if (command.where == where) return command.help;
  }
  return "";
}

// For single quotes of any of the shells.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", ""}, {"\\", ""}}),
                      "'");
}

// "name:help" as zsh's _describe reads it.
std::string Described(const std::string& name, const std::string& help) {
  return Quoted(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":",
                             absl::StrReplaceAll(help, {{":", ","}})));
}

std::string BashWords(const Command& command) {
  std::vector<std::string> words = command.names;
  words.insert(words.end(), command.choices.begin(), command.choices.end());
  for (const CommandOption& option : command.options) {
    words.push_back(option.flag);
  }
  return absl::StrJoin(words, " ");
}

}  // namespace

std::string BashCompletion(const std::vector<Command>& commands) {
  std::string script = absl::StrCat(
      "# bash completion for skrullctl. Use:\n"
      "#   source <(skrullctl completion bash)\n"
      "_skrullctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} where= words= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$where/${COMP_WORDS[i]}\" in\n      ",
      Places(commands, "|"),
      ")\n"
      "        where=\"$where/${COMP_WORDS[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$where ${COMP_WORDS[COMP_CWORD-1]}\" in\n");
  for (const Command& command : commands) {
    for (const CommandOption& option : command.options) {
      if (!option.takes_value) continue;
      const std::string action =
          option.takes_file
              ? "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); "
              : absl::StrCat("COMPREPLY=($(compgen -W '",
                             absl::StrJoin(option.choices, " "),
                             "' -- \"$cur\")); ");
      absl::StrAppend(&script, "    \"", command.where, " ", option.flag,
                      "\") ", action, "return ;;\n");
    }
  }
  absl::StrAppend(&script, "  esac\n  case \"$where\" in\n");
  for (const Command& command : commands) {
    absl::StrAppend(&script, "    \"", command.where, "\") words='",
                    BashWords(command), "'");
    if (command.takes_file) {
      absl::StrAppend(&script,
                      "; compopt -o filenames; "
                      "COMPREPLY=($(compgen -f -- \"$cur\"))");
    }
    absl::StrAppend(&script, " ;;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  COMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n"
                  "}\n"
                  "complete -F _skrullctl skrullctl\n");
  return script;
}

std::string ZshCompletion(const std::vector<Command>& commands) {
  std::string script = absl::StrCat(
      "#compdef skrullctl\n"
      "# zsh completion for skrullctl. Use:\n"
      "#   source <(skrullctl completion zsh)\n"
      "_skrullctl() {\n"
      "  local where= word\n"
      "  local -a choices\n"
      "  for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
      "    case \"$where/$word\" in\n      (",
      Places(commands, "|"),
      ")\n"
      "        where=\"$where/$word\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$where ${words[CURRENT-1]}\" in\n");
  for (const Command& command : commands) {
    for (const CommandOption& option : command.options) {
      if (!option.takes_value) continue;
      absl::StrAppend(&script, "    (\"", command.where, " ", option.flag,
                      "\") ",
                      option.takes_file ? "_files"
                      : option.choices.empty()
                          ? "_message value"
                          : "compadd " + absl::StrJoin(option.choices, " "),
                      "; return ;;\n");
    }
  }
  absl::StrAppend(&script, "  esac\n  case \"$where\" in\n");
  for (const Command& command : commands) {
    std::vector<std::string> choices;
    for (const std::string& name : command.names) {
      choices.push_back(Described(
          name, HelpOf(commands, absl::StrCat(command.where, "/", name))));
    }
    for (const std::string& choice : command.choices) {
      choices.push_back(Quoted(choice));
    }
    for (const CommandOption& option : command.options) {
      choices.push_back(Described(option.flag, option.help));
    }
    absl::StrAppend(&script, "    (\"", command.where, "\") choices=(",
                    absl::StrJoin(choices, " "), ")",
                    command.takes_file ? "; _files" : "", " ;;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  _describe skrullctl choices\n"
                  "}\n"
                  "if [ \"$funcstack[1]\" = _skrullctl ]; then\n"
                  "  _skrullctl \"$@\"\n"
                  "else\n"
                  "  compdef _skrullctl skrullctl\n"
                  "fi\n");
  return script;
}

std::string FishCompletion(const std::vector<Command>& commands) {
  std::string script = absl::StrCat(
      "# fish completion for skrullctl. Use:\n"
      "#   skrullctl completion fish | source\n"
      "function __skrullctl_at\n"
      "  set -l where ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$where/$word\"\n"
      "      case ",
      Places(commands, " "),
      "\n"
      "        set where \"$where/$word\"\n"
      "    end\n"
      "  end\n"
      "  test \"$where\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c skrullctl -f\n");
  for (const Command& command : commands) {
    const std::string at = absl::StrCat(
        "complete -c skrullctl -n \"__skrullctl_at '", command.where, "'\" ");
    for (const std::string& name : command.names) {
      absl::StrAppend(
          &script, at, "-a ", name, " -d ",
          Quoted(HelpOf(commands, absl::StrCat(command.where, "/", name))),
          "\n");
    }
    for (const std::string& choice : command.choices) {
      absl::StrAppend(&script, at, "-a ", choice, "\n");
    }
    if (command.takes_file) absl::StrAppend(&script, at, "-F\n");
    for (const CommandOption& option : command.options) {
      absl::StrAppend(&script, at, "-l ", option.flag.substr(2));
      if (option.takes_file) {
        absl::StrAppend(&script, " -r -F");
      } else if (option.takes_value) {
        absl::StrAppend(&script, " -x");
      }
      if (!option.choices.empty()) {
        absl::StrAppend(&script, " -a '", absl::StrJoin(option.choices, " "),
                        "'");
      }
      absl::StrAppend(&script, " -d ", Quoted(option.help), "\n");
    }
  }
  return script;
}

}  // namespace skrull::cli
