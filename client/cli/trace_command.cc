#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/planned_batches.h"
#include "skrull/cli/trace_writer.h"

namespace skrull::cli {
namespace {

struct TraceFlags {
  PlannedBatchesFlags batches;
  int64_t count = 0;  // of batches; 0 = all
  std::string output;
};

absl::Status WriteTrace(const PlannedBatches& batches, int64_t count,
                        Output* output, int* exit_code) {
  TraceWriter writer(batches.job(), [output](const std::string& text) {
    return output->Write(text);
  });
  absl::Status status = writer.Begin();
  Progress progress("batches traced", !OutputIsTerminal());
  for (int64_t i = 0; i < count && status.ok(); ++i) {
    const absl::StatusOr<Plan> plan = batches.PlanOf(i);
    if (plan.ok()) {
      status = writer.AddPlan(batches.Lengths(i), *plan);
    } else {
      *exit_code = kExitRefused;
      PrintError(absl::StrCat("batch ", i, ": ",
                              std::string(plan.status().message())));
      status = writer.AddRefusal(batches.Step(i), plan.status());
    }
    progress.Show(i + 1, count);
  }
  if (status.ok()) status = writer.End();
  return status.ok() ? output->Close() : status;
}

int RunTrace(const TraceFlags& flags) {
  const absl::StatusOr<PlannedBatches> batches =
      PlannedBatches::Open(flags.batches);
  if (!batches.ok()) {
    PrintError(std::string(batches.status().message()));
    return kExitUsage;
  }
  absl::StatusOr<Output> output = Output::Open(flags.output);
  if (!output.ok()) {
    PrintError(std::string(output.status().message()));
    return kExitUsage;
  }
  const int64_t count = flags.count == 0
                            ? batches->size()
                            : std::min(flags.count, batches->size());
  int exit_code = kExitOk;
  const absl::Status status = WriteTrace(*batches, count, &*output, &exit_code);
  if (status.ok()) return exit_code;
  PrintError(std::string(status.message()));
  return kExitUsage;
}

}  // namespace

void AddTraceCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "trace",
      "Draw plans as a trace for Perfetto (ui.perfetto.dev) or "
      "chrome://tracing: what each rank computes and exchanges when, step "
      "after step.");
  const auto flags = std::make_shared<TraceFlags>();
  AddPlannedBatchesOptions(*command, &flags->batches);
  command
      ->add_option("--batches", flags->count,
                   "Trace only the first batches. Default: all")
      ->type_name("COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command
      ->add_option("--output", flags->output,
                   "Where the trace goes; - is the standard output. Default: "
                   "-")
      ->type_name("FILE");
  command->footer(
      "Example:\n"
      "  skrullctl trace --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto --lengths "
      "deploy/examples/lengths/wikipedia.txt --batch-size 256 --batches 3 "
      "--output trace.json\n"
      "Exit codes: 0 all traced; 1 some batch refused, the rest traced; 2 "
      "usage, or an input that cannot be read.");
  command->callback([flags, exit_code] { *exit_code = RunTrace(*flags); });
}

}  // namespace skrull::cli
