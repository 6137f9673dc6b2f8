#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/comparison.h"
#include "skrull/cli/io.h"
#include "skrull/cli/job_file.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/cli/replayer.h"

namespace skrull::cli {
namespace {

using Batches = std::vector<std::span<const int64_t>>;

struct CompareFlags {
  std::vector<std::string> job_spec_paths;
  std::vector<std::string> lengths_paths;
  std::vector<std::string> policies;
  int64_t batch_size = 0;
  int64_t batch_limit = 0;
  ReplayFlags replay;
};

struct JobInput {
  std::string path;
  JobFile file;
};

struct ListInput {
  std::string path;
  std::vector<int64_t> lengths;
  Batches batches;  // refers to lengths
};

struct CompareInput {
  std::vector<JobInput> jobs;
  std::vector<ListInput> lists;
  std::vector<std::string> policies;  // distinct
};

absl::StatusOr<CompareInput> ReadCompareInput(const CompareFlags& flags) {
  CompareInput input;
  if (std::count(flags.lengths_paths.begin(), flags.lengths_paths.end(), "-") +
          std::count(flags.job_spec_paths.begin(), flags.job_spec_paths.end(),
                     "-") >
      1) {
    return absl::InvalidArgumentError(
        "the standard input, -, can be given only once");
  }
  for (const std::string& path : flags.job_spec_paths) {
    absl::StatusOr<JobFile> file = ReadJobFile(path);
    if (!file.ok()) return file.status();
    input.jobs.push_back({path, *std::move(file)});
  }
  for (const std::string& path : flags.lengths_paths) {
    absl::StatusOr<std::vector<int64_t>> lengths = ReadLengths(path);
    if (!lengths.ok()) return lengths.status();
    input.lists.push_back({path, *std::move(lengths), {}});
    ListInput& list = input.lists.back();
    list.batches = SplitBatches(list.lengths, flags.batch_size);
    if (flags.batch_limit > 0 && flags.batch_limit < std::ssize(list.batches)) {
      list.batches.resize(static_cast<size_t>(flags.batch_limit));
    }
  }
  for (const std::string& policy :
       flags.policies.empty() ? PolicyNames() : flags.policies) {
    if (std::find(input.policies.begin(), input.policies.end(), policy) ==
        input.policies.end()) {
      input.policies.push_back(policy);
    }
  }
  return input;
}

bool BaseIsListed(const CompareInput& input) {
  return std::find(input.policies.begin(), input.policies.end(),
                   kSpeedUpBase) != input.policies.end();
}

int64_t BatchesToPlan(const CompareInput& input) {
  int64_t batches = 0;
  for (const ListInput& list : input.lists) batches += std::ssize(list.batches);
  return batches * std::ssize(input.jobs) *
         (std::ssize(input.policies) + (BaseIsListed(input) ? 0 : 1));
}

absl::StatusOr<Comparison> Compare(const CompareInput& input,
                                   const JobInput& job, const ListInput& list,
                                   Replayer& replayer) {
  Comparison comparison = {.job = job.path,
                           .lengths = list.path,
                           .ranks = job.file.job.pool().ranks(),
                           .bucket_size_tokens = job.file.job.bucket_size(),
                           .batch_count = std::ssize(list.batches),
                           .policies = {},
                           .base_refusals = {}};
  for (const auto& batch : list.batches) {
    comparison.sequence_count += std::ssize(batch);
  }
  const absl::StatusOr<std::vector<BatchOutcome>> base =
      replayer.Replay(job.file.text, kSpeedUpBase, list.batches);
  if (!base.ok()) return base.status();
  if (!BaseIsListed(input)) {
    comparison.base_refusals = Summarize(*base).refusals;
  }
  for (const std::string& policy : input.policies) {
    const absl::StatusOr<std::vector<BatchOutcome>> outcomes =
        policy == kSpeedUpBase
            ? base
            : replayer.Replay(job.file.text, policy, list.batches);
    if (!outcomes.ok()) return outcomes.status();
    comparison.policies.push_back(
        {policy, Summarize(*outcomes), SpeedUpOver(*base, *outcomes)});
  }
  return comparison;
}

absl::Status Print(const Comparison& comparison, const std::string& format,
                   bool first, Replayer& replayer) {
  if (format == "text") return replayer.Write(ComparisonText(comparison));
  std::string text;
  for (const nlohmann::ordered_json& row : ComparisonRows(comparison)) {
    absl::StrAppend(&text, DataRow(row, format, first && text.empty()));
  }
  return replayer.Write(text);
}

absl::Status CompareAll(const CompareInput& input, const std::string& format,
                        Replayer& replayer) {
  bool first = true;
  for (const JobInput& job : input.jobs) {
    for (const ListInput& list : input.lists) {
      const absl::StatusOr<Comparison> comparison =
          Compare(input, job, list, replayer);
      if (!comparison.ok()) return comparison.status();
      absl::Status status = Print(*comparison, format, first, replayer);
      if (!status.ok()) return status;
      first = false;
    }
  }
  return format == "text" ? replayer.Write(ComparisonLegend())
                          : absl::OkStatus();
}

int RunCompare(const CompareFlags& flags) {
  const absl::StatusOr<CompareInput> input = ReadCompareInput(flags);
  if (!input.ok()) {
    PrintError(std::string(input.status().message()));
    return kExitUsage;
  }
  Replayer replayer(flags.replay, BatchesToPlan(*input));
  return replayer.Finish(CompareAll(*input, flags.replay.format, replayer));
}

}  // namespace

void AddCompareCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "compare",
      "Compare policies on lists and jobs, by the objective that all are "
      "judged by. For each job, list and policy: predicted time of a step, "
      "speed-up over POLICY_STATIC_CP, gap to the lower bound, share of tokens "
      "sharded, fullest rank against the bucket, micro-batches, roll-backs, "
      "planning time, and the batches refused, by reason.");
  const auto flags = std::make_shared<CompareFlags>();
  command
      ->add_option("--job-spec", flags->job_spec_paths,
                   "Text form of skrull.v1.JobSpec; may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->required();
  command
      ->add_option("--lengths", flags->lengths_paths,
                   "Sequence lengths, as for `skrullctl plan`; - is the "
                   "standard input; may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->required();
  command
      ->add_option("--policy", flags->policies,
                   "Policies to compare, separated by commas. Default: all")
      ->type_name("POLICY")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(PolicyNames()));
  AddBatchSizeOption(command, &flags->batch_size);
  command
      ->add_option("--batches", flags->batch_limit,
                   "Plan only so many batches of each list, the first. "
                   "Default: all")
      ->type_name("COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  AddReplayOptions(command, &flags->replay);
  command->footer(
      "Example:\n"
      "  skrullctl compare --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto --lengths lengths.txt "
      "--batch-size 256 --offline\n"
      "speed_up is the ratio of total predicted times, mean_speed_up the mean "
      "of the batches' own ratios; both are\nover the speed_up_batches that "
      "the policy and POLICY_STATIC_CP planned. Other figures are over the\n"
      "planned_batches of the policy.\n"
      "Exit codes: 0 all planned; 1 some batch refused, the rest compared; 2 "
      "usage, or an input that cannot be read;\n130 interrupted.");
  command->callback([flags, exit_code] { *exit_code = RunCompare(*flags); });
}

}  // namespace skrull::cli
