#include "skrull/server/options.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/server/option_registry.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Action = ServerCommand::Action;

// A configuration file, removed by the destructor.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    std::string name =
        (std::filesystem::temp_directory_path() / "skrull-conf-XXXXXX")
            .string();
    const int file = mkstemp(name.data());
    REQUIRE(file >= 0);
    path_ = name;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Refusal(const std::vector<std::string>& arguments) {
  const absl::Status status = ParseServerCommandLine(arguments).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(GetErrorDetail(status)->reason == ErrorReason::kFieldInvalid);
  return std::string(status.message());
}

TEST_CASE("Options: without arguments every option has its default",
          "[server][options]") {
  const ServerCommand command = ParseServerCommandLine({}).value();
  CHECK(command.action == Action::kRun);
  CHECK(command.options == ServerOptions());
  CHECK(command.options.listen_address == "127.0.0.1:7419");
  CHECK(command.options.metrics_address == "127.0.0.1:7420");
  CHECK(command.options.store == "memory");
  CHECK(command.options.max_jobs == 10000);
  CHECK(command.options.max_lengths == 1048576);
  CHECK(command.options.max_request_bytes == 16 * 1024 * 1024);
  CHECK(command.options.max_ranks == 65536);
  CHECK(command.options.kept_steps == 1024);
}

TEST_CASE("Options: every default is a value its own option accepts",
          "[server][options]") {
  for (const Option& option : OptionRegistry()) {
    CAPTURE(option.name);
    ServerOptions options;
    CHECK(option.set(option.get(options), &options).ok());
    CHECK(options == ServerOptions());
  }
}

// Another valid value for every option: a new option must be added here, which
// proves that it is wired to a member of its own.
TEST_CASE("Options: every option sets its own member and no other",
          "[server][options]") {
  const std::vector<std::pair<std::string, std::string>> values = {
      {"listen_address", "unix:/run/skrull.sock"},
      {"metrics_address", ""},
      {"reflection", "false"},
      {"tls_cert_file", "/etc/skrull/tls.crt"},
      {"tls_key_file", "/etc/skrull/tls.key"},
      {"tls_client_ca_file", "/etc/skrull/ca.crt"},
      {"tls_client_certificates", "optional"},
      {"auth_file", "/etc/skrull/auth"},
      {"allow_plaintext", "true"},
      {"store", "sqlite:/var/lib/skrull/skrull.db"},
      {"kept_steps", "7"},
      {"max_jobs", "8"},
      {"max_ranks", "9"},
      {"max_lengths", "10"},
      {"max_request_bytes", "5000"},
      {"planning_threads", "11"},
      {"planning_queue", "12"},
      {"max_waiting_calls", "13"},
      {"max_wait_seconds", "0.5"},
      {"max_queue_seconds", "2.5"},
      {"planning_queue_bytes", "1048577"},
      {"max_connection_calls", "20"},
      {"quota_jobs", "17"},
      {"quota_lengths_per_second", "18"},
      {"quota_concurrent_plans", "19"},
      {"keepalive_seconds", "14.25"},
      {"keepalive_timeout_seconds", "15"},
      {"min_ping_seconds", "16"},
      {"drain_seconds", "0"},
      {"log_level", "debug"},
      {"etcd_timeout_seconds", "2.5"},
      {"etcd_ca_file", "/etc/skrull/etcd-ca.crt"},
      {"etcd_cert_file", "/etc/skrull/etcd.crt"},
      {"etcd_key_file", "/etc/skrull/etcd.key"},
      {"log_format", "json"},
      {"slow_call_seconds", "0.125"},
      {"status_page", "false"},
      {"job_metrics", "17"},
      {"job_metrics_expiry_seconds", "18.5"},
  };
  REQUIRE(values.size() == OptionRegistry().size());
  std::vector<std::string> flags;
  std::string config;
  for (const auto& [name, value] : values) {
    CAPTURE(name, value);
    ServerOptions options;
    REQUIRE(FindOption(name)->set(value, &options).ok());
    for (const Option& option : OptionRegistry()) {
      CAPTURE(option.name);
      CHECK(option.get(options) ==
            (option.name == name ? value : option.get(ServerOptions())));
    }
    CHECK(options != ServerOptions());
    flags.push_back("--" + name);
    flags.push_back(value);
    config += name + " = " + value + "\n";
  }
  const ServerOptions all = ParseServerCommandLine(flags).value().options;
  for (const auto& [name, value] : values) {
    CHECK(FindOption(name)->get(all) == value);
  }
  ServerOptions from_text;
  REQUIRE(ApplyConfigText(config, "f", &from_text).ok());
  CHECK(from_text == all);
}

TEST_CASE("Options: a value out of range is refused with name, value and range",
          "[server][options]") {
  struct Row {
    std::string name;
    std::string value;
  };
  const Row row = GENERATE(
      Row{"max_jobs", "0"}, Row{"max_jobs", "-1"}, Row{"max_jobs", ""},
      Row{"max_jobs", "1e3"}, Row{"max_jobs", "10 000"},
      Row{"max_jobs", "99999999999999999999"}, Row{"max_ranks", "1048577"},
      Row{"max_request_bytes", "4095"}, Row{"planning_threads", "0"},
      Row{"planning_threads", "1025"}, Row{"drain_seconds", "nan"},
      Row{"drain_seconds", "inf"}, Row{"drain_seconds", "-0.1"},
      Row{"drain_seconds", "5s"}, Row{"min_ping_seconds", "0"},
      Row{"log_format", "xml"}, Row{"job_metrics", "10001"},
      Row{"reflection", "yes"}, Row{"reflection", ""},
      Row{"tls_client_certificates", "no"}, Row{"log_level", "INFO"},
      Row{"store", ""}, Row{"store", "postgres:x"}, Row{"store", "sqlite:"},
      Row{"listen_address", ""}, Row{"listen_address", "localhost"},
      Row{"listen_address", ":7419"}, Row{"listen_address", "host:"},
      Row{"listen_address", "host:65536"}, Row{"listen_address", "host:-1"},
      Row{"listen_address", "host:+1"}, Row{"listen_address", "::1:7419"},
      Row{"listen_address", "a b:1"}, Row{"listen_address", "unix:"},
      Row{"listen_address", "http://127.0.0.1:7419"},
      Row{"metrics_address", "unix:/x"});
  const std::string message = Refusal({"--" + row.name + "=" + row.value});
  CHECK_THAT(message, StartsWith(row.name + ": \"" + row.value + "\" is not "));
  CHECK_THAT(message, Contains(FindOption(row.name)->range));
}

TEST_CASE("Options: addresses of every kind are accepted",
          "[server][options]") {
  const std::string address =
      GENERATE("127.0.0.1:0", "0.0.0.0:65535", "[::1]:7419", "node-3.local:1",
               "unix:relative.sock", "unix:/run/a b.sock");
  CHECK(ParseServerCommandLine(
            {"--listen_address=" + address, "--allow_plaintext=true"})
            .value()
            .options.listen_address == address);
}

TEST_CASE("Options: wrong command lines are refused by name",
          "[server][options]") {
  CHECK_THAT(Refusal({"--max_job=1"}), StartsWith("max_job: no such option"));
  CHECK_THAT(Refusal({"--max-jobs=1"}), StartsWith("max-jobs: no such option"));
  CHECK_THAT(Refusal({"max_jobs=1"}), Contains("not a flag"));
  CHECK_THAT(Refusal({"-h"}), Contains("not a flag"));
  CHECK_THAT(Refusal({""}), Contains("not a flag"));
  CHECK_THAT(Refusal({"--"}), Contains("not a flag"));
  CHECK_THAT(Refusal({"--max_jobs"}), Contains("needs a value"));
  CHECK_THAT(Refusal({"--help=yes"}), Contains("takes no value"));
  CHECK_THAT(Refusal({"--config=a", "--config=b"}), Contains("second time"));
  CHECK_THAT(Refusal({"--help", "--nonsense=1"}), Contains("no such option"));
}

TEST_CASE("Options: of a flag given twice the last one counts",
          "[server][options]") {
  CHECK(ParseServerCommandLine({"--max_jobs=1", "--max_jobs=2"})
            .value()
            .options.max_jobs == 2);
}

TEST_CASE("Options: actions other than running are told apart",
          "[server][options]") {
  CHECK(ParseServerCommandLine({"--help"})->action == Action::kHelp);
  CHECK(ParseServerCommandLine({"--version"})->action == Action::kVersion);
  CHECK(ParseServerCommandLine({"--print-options-markdown"})->action ==
        Action::kOptionsMarkdown);
  CHECK(ParseServerCommandLine({"--print-metrics-markdown"})->action ==
        Action::kMetricsMarkdown);
}

TEST_CASE("Options: flags win over the file, the file over defaults",
          "[server][options]") {
  const ConfigFile file(
      "# a comment\n"
      "\n"
      "  max_jobs = 5   # five\r\n"
      "max_ranks=6\n"
      "\tstore\t=\tsqlite:/srv/a#b.db\t# not cut at a#b\n"
      "metrics_address =\n"
      "kept_steps = 9");
  const bool flag_first = GENERATE(true, false);
  std::vector<std::string> arguments = {"--config", file.path()};
  arguments.insert(flag_first ? arguments.begin() : arguments.end(),
                   "--max_jobs=50");
  const ServerOptions options =
      ParseServerCommandLine(arguments).value().options;
  CHECK(options.max_jobs == 50);
  CHECK(options.max_ranks == 6);
  CHECK(options.store == "sqlite:/srv/a#b.db");
  CHECK(options.metrics_address.empty());
  CHECK(options.kept_steps == 9);
  CHECK(options.max_lengths == ServerOptions().max_lengths);
}

TEST_CASE("Options: a wrong file is refused with the line and changes nothing",
          "[server][options]") {
  struct Row {
    std::string text;
    std::string problem;
  };
  const Row row = GENERATE(
      Row{"max_jobs = 5\nmax_job = 6\n", " line 2: no option \"max_job\""},
      Row{"\n\nmax_jobs 5\n", " line 3: not of the form name = value"},
      Row{"max_jobs = 5\nmax_jobs = 5\n", " line 2: max_jobs is set a second"},
      Row{"# x\nmax_jobs = many\n",
          " line 2: max_jobs: \"many\" is not an integer in 1..10000000"},
      Row{"config = other.conf\n", " line 1: no option \"config\""},
      Row{"= 5\n", " line 1: no option \"\""},
      Row{std::string("max_jobs\0 = 5\n", 14), " line 1: no option"});
  ServerOptions options;
  const absl::Status status = ApplyConfigText(row.text, "f.conf", &options);
  CHECK_THAT(std::string(status.message()), StartsWith("f.conf" + row.problem));
  CHECK(options == ServerOptions());
  const ConfigFile file(row.text);
  CHECK_THAT(Refusal({"--config=" + file.path()}),
             StartsWith(file.path() + row.problem));
}

TEST_CASE("Options: a file that cannot be read is refused",
          "[server][options]") {
  CHECK_THAT(Refusal({"--config", "/nonexistent/skrull.conf"}),
             Contains("cannot read /nonexistent/skrull.conf"));
  CHECK_THAT(Refusal({"--config", "/"}), Contains("cannot read /"));
  const ConfigFile empty("");
  CHECK(ParseServerCommandLine({"--config", empty.path()})->options ==
        ServerOptions());
}

TEST_CASE("Options: names are unique and every option explains itself",
          "[server][options]") {
  std::set<std::string> names;
  const std::string help = ServerHelpText();
  for (const Option& option : OptionRegistry()) {
    CAPTURE(option.name);
    CHECK(names.insert(option.name).second);
    CHECK(!option.section.empty());
    CHECK(!option.type.empty());
    CHECK(option.help.back() == '.');
    CHECK_THAT(help, Contains("  --" + option.name + "=" +
                              option.get(ServerOptions()) + "\n"));
    CHECK(FindOption(option.name) == &option);
  }
  CHECK(FindOption("none") == nullptr);
}

TEST_CASE("Options: docs/configuration.md is what the registry generates",
          "[server][options][docs]") {
  std::ifstream file(SKRULL_SOURCE_DIR "/docs/configuration.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  INFO("skrulld --print-options-markdown > docs/configuration.md");
  CHECK(page == OptionsMarkdown());
}

}  // namespace
}  // namespace skrull
