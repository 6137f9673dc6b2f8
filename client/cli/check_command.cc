#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/job_file.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/cli/plan_file.h"
#include "skrull/planner/planner.h"

namespace skrull::cli {
namespace {

struct CheckFlags {
  std::string job_spec_path;
  std::string lengths_path;
  std::string plan_path;
  int64_t batch_size = 0;
};

// Everything the command reads.
struct CheckInput {
  std::optional<Job> job;
  std::vector<int64_t> lengths;
  std::vector<PlanLine> lines;
};

absl::StatusOr<CheckInput> ReadCheckInput(const CheckFlags& flags) {
  CheckInput input;
  absl::StatusOr<JobFile> file = ReadJobFile(flags.job_spec_path);
  if (!file.ok()) return file.status();
  input.job = std::move(file->job);
  absl::StatusOr<std::vector<int64_t>> lengths =
      ReadLengths(flags.lengths_path);
  if (!lengths.ok()) return lengths.status();
  input.lengths = *std::move(lengths);
  absl::StatusOr<std::vector<PlanLine>> lines = ReadPlans(flags.plan_path);
  if (!lines.ok()) return lines.status();
  input.lines = *std::move(lines);
  return input;
}

absl::Status Illegal(const std::string& why) {
  return absl::FailedPreconditionError(why);
}

absl::Status CheckRefusalLine(const Job& job, std::span<const int64_t> lengths,
                              int64_t batch, const PlanLine& line) {
  if (line.batch != batch) {
    return Illegal(absl::StrCat("the line is about batch ", line.batch));
  }
  const absl::Status status = CheckBatch(job, lengths);
  if (status.ok()) {
    return Illegal(absl::StrCat("refused with ", line.code,
                                ", but the batch can be planned"));
  }
  const std::string code = absl::StatusCodeToString(status.code());
  if (line.code == code) return absl::OkStatus();
  return Illegal(absl::StrCat("refused with ", line.code,
                              ", but the reason is ", code, ": ",
                              std::string(status.message())));
}

int RunCheck(const CheckFlags& flags) {
  const absl::StatusOr<CheckInput> input = ReadCheckInput(flags);
  if (!input.ok()) {
    PrintError(std::string(input.status().message()));
    return kExitUsage;
  }
  const absl::StatusOr<std::vector<std::span<const int64_t>>> batches =
      MatchBatches(input->lengths, input->lines, flags.batch_size);
  if (!batches.ok()) {
    PrintError(std::string(batches.status().message()));
    return kExitUsage;
  }
  Progress progress("plans checked", !OutputIsTerminal());
  int exit_code = kExitOk;
  for (size_t i = 0; i < batches->size(); ++i) {
    const int64_t batch = static_cast<int64_t>(i);
    const PlanLine& line = input->lines[i];
    const absl::Status verdict =
        line.planned
            ? LegalPlan(*input->job, (*batches)[i], line.plan).status()
            : CheckRefusalLine(*input->job, (*batches)[i], batch, line);
    if (!verdict.ok()) exit_code = kExitRefused;
    if (!WriteOutput(absl::StrCat(
            "batch ", batch, ": ",
            !verdict.ok()  ? "ILLEGAL: " + std::string(verdict.message())
            : line.planned ? "legal"
                           : "rightly refused",
            "\n"))) {
      PrintError("cannot write to the standard output");
      return kExitUsage;
    }
    progress.Show(batch + 1, static_cast<int64_t>(batches->size()));
  }
  return exit_code;
}

}  // namespace

void AddCheckCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "check",
      "Check plans: each sequence placed once, on an allowed block, within "
      "memory, all numbers and the digest right; and that refusals are "
      "justified. Prints one verdict a batch.");
  const auto flags = std::make_shared<CheckFlags>();
  command
      ->add_option("--job-spec", flags->job_spec_path,
                   "Text form of skrull.v1.JobSpec")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--lengths", flags->lengths_path,
                   "Sequence lengths the plans were made for; - is the "
                   "standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--plan", flags->plan_path,
                   "Output of `skrullctl plan --format json`, one line a "
                   "batch")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--batch-size", flags->batch_size,
                   "Sequences in a batch. Default: all lengths for one plan, "
                   "else what the plans' largest sequence index says")
      ->type_name("COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->footer(
      "Example:\n"
      "  skrullctl check --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto "
      "--lengths lengths.txt --plan plans.jsonl --batch-size 256\n"
      "Exit codes: 0 all legal; 1 some plan is illegal; 2 usage, or an input "
      "that cannot be read.");
  command->callback([flags, exit_code] { *exit_code = RunCheck(*flags); });
}

}  // namespace skrull::cli
