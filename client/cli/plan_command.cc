#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/job_file.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/cli/plan_json.h"
#include "skrull/cli/plan_source.h"
#include "skrull/cli/plan_text.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

struct PlanFlags {
  std::string job_spec_path;
  std::string job;
  std::string name;
  std::string lengths_path;
  int64_t batch_size = 0;
  int64_t step = 0;
  std::string policy;
  int64_t calibration_epoch = 0;
  ServerFlags server;
  bool offline = false;
  bool explain = false;
  std::string format = "text";
};

// What the flags ask for. Errors: usage, or an input that cannot be read.
absl::StatusOr<std::unique_ptr<PlanSource>> OpenSource(PlanFlags flags) {
  if (flags.job.empty() && flags.job_spec_path.empty()) {
    return absl::InvalidArgumentError("give --job-spec or --job");
  }
  if (!flags.offline && flags.server.address.empty()) {
    flags.server.address = ServerFromEnvironment();
  }
  const bool offline = flags.server.address.empty();
  if (!flags.job.empty() && offline) {
    return absl::InvalidArgumentError(
        "--job needs a daemon: give --server or set SKRULL_SERVER");
  }
  if (!flags.name.empty() && (!offline || !flags.job.empty())) {
    return absl::InvalidArgumentError(
        "--name needs --offline: a daemon names a plan after its job");
  }
  if (flags.calibration_epoch != 0 && !offline) {
    return absl::InvalidArgumentError(
        "--calibration-epoch needs --offline: a daemon plans a job in the "
        "epoch in force, and a spec in none");
  }
  std::string spec;
  if (flags.job.empty()) {
    absl::StatusOr<JobFile> file = ReadJobFile(flags.job_spec_path);
    if (!file.ok()) return file.status();
    spec = std::move(file->text);
  }
  if (!flags.name.empty()) {
    absl::Status name = ValidateJobName(flags.name, "--name");
    if (!name.ok()) return name;
  }
  if (offline) {
    return OfflineSource(spec, flags.name, flags.policy,
                         flags.calibration_epoch);
  }
  absl::StatusOr<std::unique_ptr<PlannerClient>> client = Connect(flags.server);
  if (!client.ok()) return client.status();
  return ServerSource(*std::move(client), flags.job, spec, flags.policy);
}

std::string PlanJsonLine(const PlanResult& result) {
  v1::Plan plan;
  std::string line;
  if (plan.ParseFromString(result.plan_bytes)) AppendJson(plan, &line);
  return line + "\n";
}

int RunPlan(const PlanFlags& flags) {
  const absl::StatusOr<std::unique_ptr<PlanSource>> source = OpenSource(flags);
  if (!source.ok()) {
    PrintError(std::string(source.status().message()));
    return kExitUsage;
  }
  const absl::StatusOr<std::vector<int64_t>> lengths =
      ReadLengths(flags.lengths_path);
  if (!lengths.ok()) {
    PrintError(std::string(lengths.status().message()));
    return kExitUsage;
  }

  const bool json = flags.format == "json";
  const auto batches = SplitBatches(*lengths, flags.batch_size);
  Progress progress("batches planned", !OutputIsTerminal());
  int exit_code = kExitOk;
  for (size_t i = 0; i < batches.size(); ++i) {
    const int64_t batch = static_cast<int64_t>(i);
    const absl::StatusOr<PlanResult> plan =
        (*source)->Plan(flags.step + batch, batches[i]);
    std::string output;
    if (plan.ok()) {
      output = json ? PlanJsonLine(*plan) : PlanText(batch, batches[i], *plan);
      if (flags.explain && !json) output += ExplanationText(*plan);
    } else {
      exit_code = kExitRefused;
      output = json ? RefusalJson(batch, plan.status()) + "\n"
                    : RefusalText(batch, plan.status());
    }
    if (!WriteOutput(output)) {
      PrintError("cannot write to the standard output");
      return kExitUsage;
    }
    progress.Show(batch + 1, static_cast<int64_t>(batches.size()));
  }
  return exit_code;
}

}  // namespace

void AddPlanCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "plan",
      "Plan the batches of a lengths file. With --job-spec: what if; nothing "
      "is committed. With --job: for a registered job; each plan is committed "
      "under its step.");
  const auto flags = std::make_shared<PlanFlags>();
  CLI::Option* spec = command
                          ->add_option("--job-spec", flags->job_spec_path,
                                       "Text form of skrull.v1.JobSpec")
                          ->type_name("FILE");
  command
      ->add_option("--job", flags->job,
                   "Name of a registered job; this or --job-spec is required")
      ->type_name("NAME")
      ->excludes(spec);
  command
      ->add_option("--lengths", flags->lengths_path,
                   "Sequence lengths: one integer a line, or JSON Lines with "
                   "a `length` key; # begins a comment; - is the standard "
                   "input")
      ->type_name("FILE")
      ->required();
  AddBatchSizeOption(command, &flags->batch_size);
  command
      ->add_option("--step", flags->step,
                   "Step of the first batch; the next have the next steps. "
                   "Default: 0")
      ->type_name("STEP")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  command
      ->add_option("--policy", flags->policy,
                   "How to plan. Default: the job's policy")
      ->type_name("POLICY")
      ->check(CLI::IsMember(PolicyNames()));
  AddSourceOptions(command,
                   "Daemon to ask. Default: $SKRULL_SERVER; when that is "
                   "unset, plan in this process",
                   &flags->server, &flags->offline);
  command
      ->add_option("--name", flags->name,
                   "Job name to put into plans made in this process. Default: "
                   "none")
      ->type_name("NAME");
  command
      ->add_option("--calibration-epoch", flags->calibration_epoch,
                   "Epoch to put into plans made in this process. With the "
                   "spec of `skrullctl job get --calibrated`, the plans are "
                   "the daemon's. Default: 0")
      ->type_name("EPOCH")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  command->add_flag("--explain", flags->explain,
                    "Tell why each step takes as long as it does, and what "
                    "would lower its bound. JSON has it in any case");
  command
      ->add_option("--format", flags->format,
                   "What to print: a report, or one JSON object a batch. "
                   "Default: text")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
  command->footer(
      "Example:\n"
      "  skrullctl plan --job-spec deploy/examples/jobs/qwen2.5-0.5b.textproto "
      "--lengths lengths.txt --batch-size 256 --offline\n"
      "Exit codes: 0 all planned; 1 some batch refused, the rest planned; 2 "
      "usage.");
  command->callback([flags, exit_code] { *exit_code = RunPlan(*flags); });
}

}  // namespace skrull::cli
