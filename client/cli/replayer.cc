#include "skrull/cli/replayer.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/cli/table.h"

namespace skrull::cli {
namespace {

// As a shell reports a command that SIGINT ended.
constexpr int kExitInterrupted = 130;

ProgressMode ModeOf(const std::string& progress) {
  if (progress == "always") return ProgressMode::kAlways;
  return progress == "never" ? ProgressMode::kNever : ProgressMode::kAuto;
}

absl::StatusOr<std::unique_ptr<PlanSource>> OpenSource(
    const ServerFlags& server, const std::string& job_spec_text,
    const std::string& policy) {
  if (server.address.empty()) return OfflineSource(job_spec_text, "", policy);
  absl::StatusOr<std::unique_ptr<PlannerClient>> client = Connect(server);
  if (!client.ok()) return client.status();
  return ServerSource(*std::move(client), "", job_spec_text, policy);
}

}  // namespace

void AddReplayOptions(CLI::App* command, ReplayFlags* flags) {
  AddSourceOptions(command,
                   "Daemon to ask; it commits nothing. Default: "
                   "$SKRULL_SERVER; when that is unset, plan in this process",
                   &flags->server, &flags->offline);
  command
      ->add_option("--format", flags->format,
                   "What to print: tables, one JSON object a row, or CSV with "
                   "a header (RFC 4180). Default: text")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json", "csv"}));
  command
      ->add_option("--progress", flags->progress,
                   "Show a progress bar on the standard error output. "
                   "Default: auto, if that is a terminal")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

Replayer::Replayer(const ReplayFlags& flags, int64_t total)
    : server_(flags.server),
      total_(total),
      progress_("batches planned", ModeOf(flags.progress)) {
  if (!flags.offline && server_.address.empty()) {
    server_.address = ServerFromEnvironment();
  }
}

absl::StatusOr<std::vector<BatchOutcome>> Replayer::Replay(
    const std::string& job_spec_text, const std::string& policy,
    std::span<const std::span<const int64_t>> batches) {
  const absl::StatusOr<std::unique_ptr<PlanSource>> source =
      OpenSource(server_, job_spec_text, policy);
  if (!source.ok()) return source.status();
  std::vector<BatchOutcome> outcomes;
  for (const std::span<const int64_t> batch : batches) {
    if (interrupt_.Interrupted()) return absl::CancelledError("interrupted");
    const absl::StatusOr<PlanResult> plan =
        (*source)->Plan(std::ssize(outcomes), batch);
    if (absl::IsUnavailable(plan.status())) return plan.status();
    outcomes.push_back(OutcomeOf(batch, plan));
    refused_ = refused_ || !plan.ok();
    progress_.Show(++done_, total_);
  }
  return outcomes;
}

absl::Status Replayer::Write(const std::string& text) {
  progress_.Erase();
  if (WriteOutput(text)) return absl::OkStatus();
  return absl::InternalError("cannot write to the standard output");
}

int Replayer::Finish(const absl::Status& status) {
  progress_.Erase();
  if (status.ok()) return refused_ ? kExitRefused : kExitOk;
  const std::string how_far =
      absl::StrCat("; ", WithThousands(done_), " of ", WithThousands(total_),
                   " batches done");
  if (absl::IsCancelled(status)) {
    PrintError("interrupted" + how_far);
    return kExitInterrupted;
  }
  if (absl::IsUnavailable(status)) {
    PrintError(
        absl::StrCat("UNAVAILABLE: ", std::string(status.message()), how_far));
    return kExitRefused;
  }
  PrintError(std::string(status.message()));
  return kExitUsage;
}

std::string DataRow(const nlohmann::ordered_json& row,
                    const std::string& format, bool first) {
  if (format == "json") return JsonRow(row);
  return (first ? CsvHeader(row) : std::string()) + CsvRow(row);
}

}  // namespace skrull::cli
