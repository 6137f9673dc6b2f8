// `skrullctl health`: for people, and for what restarts or bypasses a daemon.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/plan_source.h"
#include "skrull/client/planner_client.h"

namespace skrull::cli {
namespace {

int RunHealth(const ServerFlags& server) {
  const absl::StatusOr<std::unique_ptr<PlannerClient>> client = Connect(server);
  if (!client.ok()) {
    PrintError(std::string(client.status().message()));
    return kExitUsage;
  }
  const absl::Status health = (*client)->CheckHealth();
  if (!health.ok()) {
    PrintError(absl::StrCat(absl::StatusCodeToString(health.code()), ": ",
                            std::string(health.message())));
    return kExitRefused;
  }
  if (WriteOutput("SERVING\n")) return kExitOk;
  PrintError("cannot write to the standard output");
  return kExitUsage;
}

}  // namespace

void AddHealthCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "health",
      "Ask a daemon once whether it takes calls: prints SERVING and exits 0, "
      "or says why not and exits 1");
  command->footer("Example:\n  skrullctl health");
  const auto server = std::make_shared<ServerFlags>();
  server->timeout_seconds = 3;  // a probe's, not a person's
  AddServerOptions(command, server.get());
  command->callback([server, exit_code] { *exit_code = RunHealth(*server); });
}

}  // namespace skrull::cli
