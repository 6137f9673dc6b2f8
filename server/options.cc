#include "skrull/server/options.h"

#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "skrull/planner/error.h"
#include "skrull/server/option_registry.h"
#include "skrull/server/security_options.h"

namespace skrull {
namespace {

// Flags that are not options: they say what to do, or where options are.
constexpr char kConfig[] = "config";
constexpr char kHelp[] = "help";
constexpr char kVersion[] = "version";
constexpr char kOptionsMarkdown[] = "print-options-markdown";
constexpr char kMetricsMarkdown[] = "print-metrics-markdown";

struct Flag {
  std::string name;
  std::string value;
};

bool TakesNoValue(const std::string& name) {
  return name == kHelp || name == kVersion || name == kOptionsMarkdown ||
         name == kMetricsMarkdown;
}

absl::Status UsageError(const std::string& argument,
                        const std::string& problem) {
  return FieldError(absl::CHexEscape(argument), problem);
}

absl::StatusOr<std::vector<Flag>> SplitArguments(
    const std::vector<std::string>& arguments) {
  std::vector<Flag> flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("--", 0) != 0 || argument.size() == 2) {
      return UsageError(argument, "not a flag; flags are --name=value");
    }
    const size_t equals = argument.find('=');
    Flag flag;
    flag.name =
        argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (TakesNoValue(flag.name)) {
      if (equals != std::string::npos) {
        return UsageError(flag.name, "takes no value");
      }
    } else if (flag.name != kConfig && FindOption(flag.name) == nullptr) {
      return UsageError(flag.name, "no such option; --help lists them");
    } else if (equals != std::string::npos) {
      flag.value = argument.substr(equals + 1);
    } else if (++i < arguments.size()) {
      flag.value = arguments[i];
    } else {
      return UsageError(flag.name, "needs a value");
    }
    flags.push_back(flag);
  }
  return flags;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[4096];
  while (file.read(part, sizeof(part)) || file.gcount() > 0) {
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  // A folder opens, and fails here.
  if (!file.eof())
    return FieldError(kConfig, absl::StrCat("cannot read ", path));
  return text;
}

// The line without its comment and the space around it.
std::string Content(const std::string& line) {
  size_t end = line.find('#');
  while (end != std::string::npos && end > 0 &&
         !absl::ascii_isspace(static_cast<unsigned char>(line[end - 1]))) {
    end = line.find('#', end + 1);
  }
  return std::string(absl::StripAsciiWhitespace(line.substr(0, end)));
}

// `text` in lines of at most 79 columns, each after `indent` spaces.
std::string Wrap(const std::string& text, size_t indent) {
  constexpr size_t kColumns = 79;
  std::string out;
  size_t column = 0;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(text, ' '))) {
    if (column > 0 && column + 1 + word.size() > kColumns) {
      out += "\n";
      column = 0;
    }
    out += column == 0 ? std::string(indent, ' ') : " ";
    out += word;
    column += (column == 0 ? indent : 1) + word.size();
  }
  return out + "\n";
}

std::string RangeText(const Option& option) {
  return option.range.empty() ? option.type
                              : absl::StrCat(option.type, " ", option.range);
}

}  // namespace

absl::Status ApplyConfigText(const std::string& text, const std::string& file,
                             ServerOptions* options) {
  ServerOptions result = *options;
  std::set<std::string> seen;
  int number = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    ++number;
    const std::string content = Content(line);
    if (content.empty()) continue;
    const std::string where = absl::StrCat(file, " line ", number);
    const size_t equals = content.find('=');
    if (equals == std::string::npos) {
      return FieldError(where, "not of the form name = value");
    }
    const std::string name(
        absl::StripAsciiWhitespace(content.substr(0, equals)));
    const std::string value(
        absl::StripAsciiWhitespace(content.substr(equals + 1)));
    const Option* const option = FindOption(name);
    if (option == nullptr) {
      return FieldError(
          where, absl::StrCat("no option \"", absl::CHexEscape(name), "\""));
    }
    if (!seen.insert(name).second) {
      return FieldError(where, absl::StrCat(name, " is set a second time"));
    }
    absl::Status status = option->set(value, &result);
    if (!status.ok()) {
      return FieldError(where, std::string(status.message()));
    }
  }
  *options = result;
  return absl::OkStatus();
}

absl::StatusOr<ServerCommand> ParseServerCommandLine(
    const std::vector<std::string>& arguments) {
  absl::StatusOr<std::vector<Flag>> flags = SplitArguments(arguments);
  if (!flags.ok()) return flags.status();
  ServerCommand command;
  std::optional<std::string> config;
  for (const Flag& flag : *flags) {
    if (flag.name == kHelp) command.action = ServerCommand::Action::kHelp;
    if (flag.name == kVersion) command.action = ServerCommand::Action::kVersion;
    if (flag.name == kOptionsMarkdown) {
      command.action = ServerCommand::Action::kOptionsMarkdown;
    }
    if (flag.name == kMetricsMarkdown) {
      command.action = ServerCommand::Action::kMetricsMarkdown;
    }
    if (flag.name != kConfig) continue;
    if (config) return FieldError(kConfig, "given a second time");
    config = flag.value;
  }
  if (command.action != ServerCommand::Action::kRun) return command;
  if (config) {
    absl::StatusOr<std::string> text = ReadFile(*config);
    if (!text.ok()) return text.status();
    absl::Status status = ApplyConfigText(*text, *config, &command.options);
    if (!status.ok()) return status;
  }
  for (const Flag& flag : *flags) {
    if (flag.name == kConfig) continue;
    absl::Status status =
        FindOption(flag.name)->set(flag.value, &command.options);
    if (!status.ok()) return status;
  }
  absl::Status status = CheckSecurity(command.options);
  if (!status.ok()) return status;
  return command;
}

std::string ServerHelpText() {
  std::string text =
      "Usage: skrulld [--config FILE] [--NAME=VALUE ...]\n"
      "\n"
      "Plans global batches for training jobs, over gRPC.\n"
      "Example: skrulld --store=sqlite:/var/lib/skrull/skrull.db\n"
      "\n"
      "  --config FILE\n"
      "      Read options from FILE: lines `name = value`, # comments. Flags\n"
      "      win over the file.\n"
      "  --help, --version\n"
      "  --print-options-markdown\n"
      "      Print docs/configuration.md.\n"
      "  --print-metrics-markdown\n"
      "      Print docs/metrics.md.\n"
      "\n"
      "Exit status: 0 after a clean stop, 1 on failure, 2 on a usage error.\n";
  const ServerOptions defaults;
  std::string section;
  for (const Option& option : OptionRegistry()) {
    if (option.section != section) {
      section = option.section;
      absl::StrAppend(&text, "\n", section, ":\n");
    }
    absl::StrAppend(&text, "  --", option.name, "=", option.get(defaults), "\n",
                    Wrap(absl::StrCat("(", RangeText(option), ")"), 6),
                    Wrap(option.help, 6));
  }
  return text;
}

std::string OptionsMarkdown() {
  std::string text =
      "# Configuration of skrulld\n"
      "\n"
      "<!-- Generated: skrulld --print-options-markdown. Do not edit. -->\n"
      "\n"
      "Every option is a flag, `--name=value` or `--name value`, and a line\n"
      "`name = value` of the file given by `--config FILE`. Flags win over "
      "the\n"
      "file, the file wins over the defaults below. In the file, blank lines\n"
      "are skipped, and so is everything from a `#` that starts a line or\n"
      "follows a space. An unknown or repeated name, or a value out of range,\n"
      "stops the daemon with exit status 2 and a message that names the line.\n"
      "\n"
      "A file for a deployment:\n"
      "\n"
      "    # /etc/skrull/skrulld.conf\n"
      "    listen_address = 10.0.0.5:7419\n"
      "    metrics_address = 10.0.0.5:7420\n"
      "    tls_cert_file = /etc/skrull/tls.crt\n"
      "    tls_key_file = /etc/skrull/tls.key\n"
      "    auth_file = /etc/skrull/auth\n"
      "    store = sqlite:/var/lib/skrull/skrull.db\n"
      "    planning_threads = 4\n";
  const ServerOptions defaults;
  std::string section;
  for (const Option& option : OptionRegistry()) {
    if (option.section != section) {
      section = option.section;
      absl::StrAppend(&text, "\n## ", section, "\n");
    }
    const std::string value = option.get(defaults);
    absl::StrAppend(&text, "\n### `", option.name, "`\n\n",
                    "- Value: ", RangeText(option), "\n", "- Default: ",
                    value.empty() ? "empty" : absl::StrCat("`", value, "`"),
                    "\n\n", Wrap(option.help, 0));
  }
  return text;
}

}  // namespace skrull
