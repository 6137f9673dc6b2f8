#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/calibrations.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/cli/plan_source.h"
#include "skrull/client/planner_client.h"

namespace skrull::cli {
namespace {

struct JobFlags {
  std::string name;
  std::string job_spec_path;
  int64_t generation = 0;
  bool calibrated = false;
  std::string format = "text";
  ServerFlags server;
};

int Fail(const absl::Status& status, int exit_code) {
  PrintError(absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                          std::string(status.message())));
  return exit_code;
}

int Print(const std::string& text) {
  if (WriteOutput(text)) return kExitOk;
  PrintError("cannot write to the standard output");
  return kExitUsage;
}

// "2026-01-31T12:34:56Z".
std::string Utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string Summary(const JobInfo& job) {
  return absl::StrCat("job ", job.name, ", generation ", job.generation,
                      ", calibration epoch ", job.calibration_epoch,
                      ", created ", Utc(job.create_time));
}

// A spec file that --job-spec reads again: as registered, with what was learnt
// in comments, or with the numbers in force.
std::string SpecText(const JobInfo& job, bool calibrated) {
  std::string text = absl::StrCat("# ", Summary(job), "\n");
  if (!job.owner.empty()) absl::StrAppend(&text, "# owner ", job.owner, "\n");
  if (calibrated) return text + job.calibrated_spec_text;
  for (const auto& [name, value] : CalibratedNumbers(job.calibration)) {
    absl::StrAppend(&text, "# calibrated: ", name, " ", value, "\n");
  }
  if (!job.calibration.text.empty()) {
    absl::StrAppend(&text, "# ", job.calibration.text, "\n");
  }
  return text + job.job_spec_text;
}

std::string ListText(const std::vector<JobInfo>& jobs) {
  size_t width = 4;
  for (const JobInfo& job : jobs) width = std::max(width, job.name.size());
  const int columns = static_cast<int>(width);
  std::string text = absl::StrFormat("%-*s  %10s  %5s  %s\n", columns, "NAME",
                                     "GENERATION", "EPOCH", "CREATED");
  for (const JobInfo& job : jobs) {
    absl::StrAppendFormat(&text, "%-*s  %10d  %5d  %s\n", columns, job.name,
                          job.generation, job.calibration_epoch,
                          Utc(job.create_time));
  }
  return text;
}

std::string ListJson(const std::vector<JobInfo>& jobs) {
  std::string text;
  for (const JobInfo& job : jobs) {
    const nlohmann::ordered_json line = {
        {"name", job.name},
        {"generation", job.generation},
        {"calibration_epoch", job.calibration_epoch},
        {"create_time", Utc(job.create_time)}};
    absl::StrAppend(&text, line.dump(), "\n");
  }
  return text;
}

int RunCreate(PlannerClient& client, const JobFlags& flags) {
  const absl::StatusOr<std::string> spec = ReadInput(flags.job_spec_path);
  if (!spec.ok()) {
    PrintError(std::string(spec.status().message()));
    return kExitUsage;
  }
  const absl::StatusOr<JobInfo> job =
      client.CreateJob(flags.name, *spec, flags.generation);
  if (!job.ok()) return Fail(job.status(), kExitRefused);
  return Print(Summary(*job) + "\n");
}

int RunGet(PlannerClient& client, const JobFlags& flags) {
  const absl::StatusOr<JobInfo> job = client.GetJob(flags.name);
  if (!job.ok()) return Fail(job.status(), kExitRefused);
  return Print(SpecText(*job, flags.calibrated));
}

int RunCalibrations(PlannerClient& client, const JobFlags& flags) {
  const absl::StatusOr<std::vector<CalibrationInfo>> epochs =
      client.ListCalibrations(flags.name, flags.generation);
  if (!epochs.ok()) return Fail(epochs.status(), kExitRefused);
  return Print(flags.format == "json" ? CalibrationsJson(*epochs)
                                      : CalibrationsText(*epochs));
}

int RunList(PlannerClient& client, const JobFlags& flags) {
  const absl::StatusOr<std::vector<JobInfo>> jobs = client.ListJobs();
  if (!jobs.ok()) return Fail(jobs.status(), kExitRefused);
  return Print(flags.format == "json" ? ListJson(*jobs) : ListText(*jobs));
}

int RunDelete(PlannerClient& client, const JobFlags& flags) {
  const absl::Status status = client.DeleteJob(flags.name, flags.generation);
  if (!status.ok()) return Fail(status, kExitRefused);
  return Print(absl::StrCat("job ", flags.name, " deleted\n"));
}

using Action = int (*)(PlannerClient&, const JobFlags&);

// A command with the flags that all job commands have.
CLI::App* AddJobCommand(CLI::App& parent, const std::string& name,
                        const std::string& help, const std::string& example,
                        const std::shared_ptr<JobFlags>& flags, Action action,
                        int* exit_code) {
  CLI::App* command = parent.add_subcommand(name, help);
  AddServerOptions(command, &flags->server);
  command->footer("Example:\n  " + example);
  command->callback([flags, action, exit_code] {
    const absl::StatusOr<std::unique_ptr<PlannerClient>> client =
        Connect(flags->server);
    *exit_code = client.ok() ? action(**client, *flags)
                             : Fail(client.status(), kExitUsage);
  });
  return command;
}

void AddName(CLI::App* command, const std::shared_ptr<JobFlags>& flags) {
  command->add_option("NAME", flags->name, "Name of the job")->required();
}

}  // namespace

void AddJobCommands(CLI::App& app, int* exit_code) {
  CLI::App* job = app.add_subcommand(
      "job", "Create, show, list and delete the jobs of a daemon");
  job->require_subcommand(1);
  job->footer("Example:\n  skrullctl job list");

  auto flags = std::make_shared<JobFlags>();
  CLI::App* create = AddJobCommand(
      *job, "create", "Register a job, or join it when its spec is the same",
      "skrullctl job create run7 --job-spec "
      "deploy/examples/jobs/qwen2.5-0.5b.textproto",
      flags, RunCreate, exit_code);
  AddName(create, flags);
  create
      ->add_option("--job-spec", flags->job_spec_path,
                   "Text form of skrull.v1.JobSpec; - is the standard input")
      ->type_name("FILE")
      ->required();
  create
      ->add_option("--generation", flags->generation,
                   "Replace the job when this is above its generation: its "
                   "plans are forgotten. Default: 0, never replace")
      ->type_name("NUMBER")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));

  flags = std::make_shared<JobFlags>();
  CLI::App* get = AddJobCommand(
      *job, "get", "Print a job's spec, in the form --job-spec reads",
      "skrullctl job get run7", flags, RunGet, exit_code);
  AddName(get, flags);
  get->add_flag("--calibrated", flags->calibrated,
                "With the numbers in force in the place of the spec's: what "
                "the daemon plans for");

  flags = std::make_shared<JobFlags>();
  AddJobCommand(*job, "list", "List all jobs by name", "skrullctl job list",
                flags, RunList, exit_code)
      ->add_option("--format", flags->format,
                   "What to print: a table, or one JSON object a job. "
                   "Default: text")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));

  flags = std::make_shared<JobFlags>();
  CLI::App* calibrations = AddJobCommand(
      *job, "calibrations", "List what a job's step reports have taught",
      "skrullctl job calibrations run7", flags, RunCalibrations, exit_code);
  AddName(calibrations, flags);
  calibrations
      ->add_option("--format", flags->format,
                   "What to print: a table, or one JSON object an epoch. "
                   "Default: text")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));

  flags = std::make_shared<JobFlags>();
  CLI::App* erase =
      AddJobCommand(*job, "delete", "Forget a job, its plans and its reports",
                    "skrullctl job delete run7", flags, RunDelete, exit_code);
  AddName(erase, flags);
  erase
      ->add_option("--generation", flags->generation,
                   "Delete only this generation. Default: 0, any")
      ->type_name("NUMBER")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
}

}  // namespace skrull::cli
