#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/job_file.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/cli/replayer.h"
#include "skrull/cli/simulation.h"
#include "skrull/cli/sweep.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

struct SimulateFlags {
  std::string job_spec_path;
  std::string lengths_path;
  Sweep sweep;
  ReplayFlags replay;
};

struct SimulateInput {
  std::vector<Variant> variants;  // not empty
  std::vector<int64_t> lengths;
};

absl::StatusOr<SimulateInput> ReadSimulateInput(const SimulateFlags& flags) {
  if (flags.job_spec_path == "-" && flags.lengths_path == "-") {
    return absl::InvalidArgumentError(
        "the standard input, -, can be given only once");
  }
  const absl::StatusOr<JobFile> file = ReadJobFile(flags.job_spec_path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(file->text);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<std::vector<Variant>> variants =
      MakeVariants(*spec, flags.sweep);
  if (!variants.ok()) return variants.status();
  absl::StatusOr<std::vector<int64_t>> lengths =
      ReadLengths(flags.lengths_path);
  if (!lengths.ok()) return lengths.status();
  return SimulateInput{*std::move(variants), *std::move(lengths)};
}

int64_t BatchesToPlan(const SimulateInput& input) {
  int64_t batches = 0;
  for (const Variant& variant : input.variants) {
    batches += std::ssize(SplitBatches(input.lengths, variant.batch_size));
  }
  return batches;
}

absl::StatusOr<SimulatedEpoch> SimulateOne(const SimulateInput& input,
                                           const Variant& variant,
                                           Replayer& replayer) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(variant.spec, &text);
  const absl::StatusOr<std::vector<BatchOutcome>> outcomes = replayer.Replay(
      text, "", SplitBatches(input.lengths, variant.batch_size));
  if (!outcomes.ok()) return outcomes.status();
  return SimulatedEpoch{.changes = variant.changes,
                        .policy = PolicyName(variant.job.policy()),
                        .batch_size = variant.batch_size > 0
                                          ? variant.batch_size
                                          : std::ssize(input.lengths),
                        .ranks = variant.job.pool().ranks(),
                        .bucket_size_tokens = variant.job.bucket_size(),
                        .figures = Summarize(*outcomes)};
}

// Adds the epochs of all variants to `simulation`, and writes their rows.
absl::Status SimulateAll(const SimulateInput& input, const std::string& format,
                         Replayer& replayer, Simulation* simulation) {
  for (const Variant& variant : input.variants) {
    absl::StatusOr<SimulatedEpoch> epoch =
        SimulateOne(input, variant, replayer);
    if (!epoch.ok()) return epoch.status();
    const size_t index = simulation->epochs.size();
    simulation->epochs.push_back(*std::move(epoch));
    if (format == "text") continue;
    absl::Status status = replayer.Write(
        DataRow(SimulationRow(*simulation, index), format, index == 0));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

int RunSimulate(const SimulateFlags& flags) {
  const absl::StatusOr<SimulateInput> input = ReadSimulateInput(flags);
  if (!input.ok()) {
    PrintError(std::string(input.status().message()));
    return kExitUsage;
  }
  Replayer replayer(flags.replay, BatchesToPlan(*input));
  Simulation simulation = {.job = flags.job_spec_path,
                           .lengths = flags.lengths_path,
                           .sequence_count = std::ssize(input->lengths),
                           .epochs = {}};
  absl::Status status =
      SimulateAll(*input, flags.replay.format, replayer, &simulation);
  // What is done is shown, also after Ctrl-C.
  if (flags.replay.format == "text" && !simulation.epochs.empty()) {
    status.Update(replayer.Write(SimulationText(simulation)));
  }
  return replayer.Finish(status);
}

}  // namespace

void AddSimulateCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "simulate",
      "Plan a whole list as an epoch, for a job as it is and for every "
      "combination of other batch sizes, buckets, cp sizes, scopes and "
      "policies. For each: steps, predicted time of the epoch, tokens per "
      "second and rank, speed-up over the job as it is, gap to the lower "
      "bound, fullest rank against the bucket, planning time, and the batches "
      "refused, by reason.");
  const auto flags = std::make_shared<SimulateFlags>();
  Sweep& sweep = flags->sweep;
  const auto add_list = [&](const std::string& name, auto& values,
                            const std::string& help, const std::string& type) {
    return command->add_option(name, values, help)
        ->type_name(type)
        ->delimiter(',')
        ->allow_extra_args(false);
  };
  command
      ->add_option("--job-spec", flags->job_spec_path,
                   "Text form of skrull.v1.JobSpec")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--lengths", flags->lengths_path,
                   "Sequence lengths, as for `skrullctl plan`; - is the "
                   "standard input")
      ->type_name("FILE")
      ->required();
  add_list("--batch-size", sweep.batch_sizes,
           "Sequences in a batch, separated by commas; the first is that of "
           "the job as it is. The last batch may be shorter. Default: all "
           "lengths are one batch",
           "COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_list("--bucket", sweep.bucket_sizes,
           "Values of memory.bucket_size_tokens, separated by commas", "TOKENS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add_list("--cp", sweep.cp_sizes,
           "Values of parallelism.cp_size, separated by commas. The ranks stay "
           "as many: dp_size becomes ranks / cp_size, which must divide evenly",
           "COUNT")
      ->check(CLI::Range(1, 1 << 20));
  add_list("--scope", sweep.scopes,
           "Values of parallelism.block_scope, separated by commas", "SCOPE")
      ->check(CLI::IsMember({"GROUP", "SUBGROUP", "POOL"}));
  add_list("--policy", sweep.policies, "Policies, separated by commas",
           "POLICY")
      ->check(CLI::IsMember(PolicyNames()));
  AddReplayOptions(command, &flags->replay);
  command->footer(
      "Example:\n"
      "  skrullctl simulate --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto --lengths lengths.txt "
      "--batch-size 256 --cp 4,8 --scope GROUP,POOL --offline\n"
      "Row 0 is the job as it is. Figures are over the planned_steps; speed_up "
      "is of tokens_per_second_per_rank.\n"
      "Exit codes: 0 all planned; 1 some batch refused, the rest planned; 2 "
      "usage, or an input that cannot be read;\n130 interrupted, what was done "
      "is printed.");
  command->callback([flags, exit_code] { *exit_code = RunSimulate(*flags); });
}

}  // namespace skrull::cli
