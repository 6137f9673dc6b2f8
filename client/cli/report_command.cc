#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/planned_batches.h"
#include "skrull/cli/report_data.h"

namespace skrull::cli {
namespace {

struct ReportFlags {
  PlannedBatchesFlags batches;
  int64_t batch = 0;
  std::string output;
};

int Fail(int exit_code, const std::string& message) {
  PrintError(message);
  return exit_code;
}

int RunReport(const ReportFlags& flags) {
  const absl::StatusOr<PlannedBatches> batches =
      PlannedBatches::Open(flags.batches);
  if (!batches.ok()) {
    return Fail(kExitUsage, std::string(batches.status().message()));
  }
  if (flags.batch >= batches->size()) {
    return Fail(kExitUsage,
                absl::StrCat("--batch ", flags.batch, ": there are ",
                             batches->size(), " batches"));
  }
  const absl::StatusOr<Plan> plan = batches->PlanOf(flags.batch);
  if (!plan.ok()) {
    return Fail(kExitRefused,
                absl::StrCat("batch ", flags.batch, ": ",
                             std::string(plan.status().message())));
  }
  if (plan->chunk_plan) {
    return Fail(kExitRefused,
                absl::StrCat("batch ", flags.batch,
                             ": a plan of POLICY_CHUNK_FLOW has chunks, which "
                             "are not drawn"));
  }
  const std::string page = ReportPage(
      ReportData(batches->job(), batches->Lengths(flags.batch), *plan));
  absl::StatusOr<Output> output = Output::Open(flags.output);
  absl::Status status = output.status();
  if (status.ok()) status = output->Write(page);
  if (status.ok()) status = output->Close();
  if (status.ok()) return kExitOk;
  return Fail(kExitUsage, std::string(status.message()));
}

}  // namespace

void AddReportCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "report",
      "Show one batch's plan as a web page: a timeline of each rank, loads, "
      "what is sharded and why, and what bounds the step. One file that loads "
      "nothing.");
  const auto flags = std::make_shared<ReportFlags>();
  AddPlannedBatchesOptions(*command, &flags->batches);
  command
      ->add_option("--batch", flags->batch, "Which batch, from 0. Default: 0")
      ->type_name("INDEX")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command
      ->add_option("--output", flags->output,
                   "Where the page goes; - is the standard output. Default: -")
      ->type_name("FILE");
  command->footer(
      "Example:\n"
      "  skrullctl report --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto --lengths "
      "deploy/examples/lengths/wikipedia.txt --batch-size 256 --policy "
      "POLICY_OPTIMIZED --output report.html\n"
      "Exit codes: 0 written; 1 the batch is refused, or its plan illegal; 2 "
      "usage, or an input that cannot be read.");
  command->callback([flags, exit_code] { *exit_code = RunReport(*flags); });
}

}  // namespace skrull::cli
