#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/cli/archive.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/debug_bundle.h"
#include "skrull/cli/io.h"
#include "skrull/cli/plan_source.h"

namespace skrull::cli {
namespace {

// Of a daemon with default options.
constexpr char kMetricsPort[] = "7420";

struct BundleFlags {
  ServerFlags server;
  std::string job;
  std::string metrics;
  std::string out;
};

// Where the daemon at `server` shows its metrics unless it was told otherwise;
// empty for one that is no host and port.
std::string DefaultMetricsAddress(const std::string& server) {
  const size_t colon = server.rfind(':');
  if (colon == std::string::npos || server.starts_with("unix:")) return "";
  const std::string ipv6 = "ipv6:";
  const size_t begin = server.starts_with(ipv6) ? ipv6.size() : 0;
  return absl::StrCat(server.substr(begin, colon - begin), ":", kMetricsPort);
}

int RunBundle(const BundleFlags& flags) {
  const absl::StatusOr<std::unique_ptr<PlannerClient>> client =
      Connect(flags.server);
  if (!client.ok()) {
    PrintError(std::string(client.status().message()));
    return kExitUsage;
  }
  BundleRequest request = {
      .server = ServerOrDefault(flags.server.address),
      .job = flags.job,
      .metrics_url = {},
      .timeout = std::chrono::milliseconds(
          static_cast<int64_t>(1e3 * flags.server.timeout_seconds)),
      .now = std::chrono::system_clock::now()};
  const std::string metrics = flags.metrics.empty()
                                  ? DefaultMetricsAddress(request.server)
                                  : flags.metrics;
  if (!metrics.empty() && metrics != "none") {
    request.metrics_url = absl::StrCat("http://", metrics, "/metrics");
  }
  // Specs are the owner's alone to pass on.
  ::umask(S_IRWXG | S_IRWXO);
  absl::StatusOr<Output> output = Output::Open(flags.out);
  if (!output.ok()) {
    PrintError(std::string(output.status().message()));
    return kExitUsage;
  }
  Bundle bundle = GatherBundle(**client, request);
  for (ArchivedFile& file : bundle.files) {
    file.name = "skrull-debug/" + file.name;
  }
  const absl::StatusOr<std::string> archive = TarGz(bundle.files, request.now);
  absl::Status status = archive.status();
  if (status.ok()) status = output->Write(*archive);
  if (status.ok()) status = output->Close();
  if (!status.ok()) {
    PrintError(std::string(status.message()));
    return kExitUsage;
  }
  for (const BundleError& error : bundle.errors) {
    PrintError(absl::StrCat(error.what, ": ",
                            absl::StatusCodeToString(error.status.code()), ": ",
                            std::string(error.status.message())));
  }
  return bundle.errors.empty() ? kExitOk : kExitRefused;
}

}  // namespace

void AddDebugBundleCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "debug-bundle",
      "Gather what a report of a problem needs into one archive: the daemon's "
      "status, jobs, calibrations, last plans and metrics, and facts about "
      "this "
      "client. Label values and unknown environment variables are left out. "
      "What cannot be had is listed in its manifest.json.");
  auto flags = std::make_shared<BundleFlags>();
  AddServerOptions(command, &flags->server);
  command
      ->add_option("--out", flags->out,
                   "Archive to write, .tar.gz; - is the standard output")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--job", flags->job,
                   "Only this job. Default: the first 100 by name, and the 16 "
                   "last plans")
      ->type_name("NAME");
  command
      ->add_option("--metrics", flags->metrics,
                   absl::StrCat("Where the daemon shows its metrics, or none. "
                                "Default: port ",
                                kMetricsPort, " of the daemon's host"))
      ->type_name("HOST:PORT");
  command->footer(
      "Example:\n  skrullctl debug-bundle --out debug.tar.gz\n"
      "Exit codes: 0 all is in it; 1 something is missing, and listed; 2 "
      "usage, "
      "or it cannot be written.");
  command->callback([flags, exit_code] { *exit_code = RunBundle(*flags); });
}

}  // namespace skrull::cli
