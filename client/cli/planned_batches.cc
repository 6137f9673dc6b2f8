#include "skrull/cli/planned_batches.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/cli/job_file.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/cli/plan_file.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull::cli {

void AddPlannedBatchesOptions(CLI::App& command, PlannedBatchesFlags* flags) {
  command
      .add_option("--job-spec", flags->job_spec_path,
                  "Text form of skrull.v1.JobSpec")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--lengths", flags->lengths_path,
                  "Sequence lengths, as `skrullctl plan` reads them; - is the "
                  "standard input")
      ->type_name("FILE")
      ->required();
  CLI::Option* plan =
      command
          .add_option("--plan", flags->plan_path,
                      "Output of `skrullctl plan --format json` for these "
                      "lengths. Default: plan in this process")
          ->type_name("FILE");
  command
      .add_option("--batch-size", flags->batch_size,
                  "Sequences in a batch. Default: all lengths are one batch; "
                  "with --plan, what the plans' largest sequence index says")
      ->type_name("COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command
      .add_option("--policy", flags->policy,
                  "How to plan. Default: the job's policy")
      ->type_name("POLICY")
      ->check(CLI::IsMember(PolicyNames()))
      ->excludes(plan);
  command
      .add_option("--step", flags->step,
                  "Step of the first batch; the next have the next steps. "
                  "Default: 0")
      ->type_name("STEP")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60))
      ->excludes(plan);
  command.add_option("--name", flags->name, "Job name to show. Default: none")
      ->type_name("NAME")
      ->excludes(plan);
}

absl::StatusOr<PlannedBatches> PlannedBatches::Open(
    const PlannedBatchesFlags& flags) {
  absl::StatusOr<JobFile> file = ReadJobFile(flags.job_spec_path);
  if (!file.ok()) return file.status();
  PlannedBatches batches(file->job);
  if (!flags.name.empty()) {
    absl::Status name = ValidateJobName(flags.name, "--name");
    if (!name.ok()) return name;
  }
  absl::StatusOr<std::vector<int64_t>> lengths =
      ReadLengths(flags.lengths_path);
  if (!lengths.ok()) return lengths.status();
  batches.lengths_ = *std::move(lengths);
  batches.batch_size_ = flags.batch_size;
  batches.name_ = flags.name;
  batches.step_ = flags.step;
  for (const Policy policy : AllPolicies()) {
    if (PolicyName(policy) == flags.policy) batches.policy_ = policy;
  }
  if (flags.plan_path.empty()) {
    batches.count_ =
        std::ssize(SplitBatches(batches.lengths_, batches.batch_size_));
    return batches;
  }
  absl::StatusOr<std::vector<PlanLine>> lines = ReadPlans(flags.plan_path);
  if (!lines.ok()) return lines.status();
  const auto matched =
      MatchBatches(batches.lengths_, *lines, batches.batch_size_);
  if (!matched.ok()) return matched.status();
  // Batches are equally long but for the last: the first tells how long.
  batches.batch_size_ = std::ssize(matched->front());
  batches.count_ = std::ssize(*matched);
  batches.lines_ = *std::move(lines);
  return batches;
}

std::span<const int64_t> PlannedBatches::Lengths(int64_t index) const {
  const std::span<const int64_t> all(lengths_);
  if (batch_size_ == 0) return all;
  const auto begin = static_cast<size_t>(index * batch_size_);
  return all.subspan(
      begin, std::min(static_cast<size_t>(batch_size_), all.size() - begin));
}

int64_t PlannedBatches::Step(int64_t index) const {
  if (lines_.empty()) return step_ + index;
  const PlanLine& line = lines_[static_cast<size_t>(index)];
  return line.planned ? line.plan.step() : line.batch;
}

absl::StatusOr<Plan> PlannedBatches::PlanOf(int64_t index) const {
  if (lines_.empty()) {
    return MakePlan(
        job_, Lengths(index),
        {.key = {.job = name_, .step = step_ + index}, .policy = policy_});
  }
  const PlanLine& line = lines_[static_cast<size_t>(index)];
  if (!line.planned) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was refused with ", line.code));
  }
  return LegalPlan(job_, Lengths(index), line.plan);
}

}  // namespace skrull::cli
