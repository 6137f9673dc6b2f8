#include "skrull/deploy/demo/demo.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/server/convert.h"
#include "skrull/v1/job.pb.h"
#include "skrull/v1/plan.pb.h"

namespace skrull::demo {
namespace {

// What the daemon sent is a plan that the checker accepts.
absl::Status Check(const Job& job, const std::vector<int64_t>& lengths,
                   const PlanResult& result) {
  v1::Plan wire;
  if (!wire.ParseFromString(result.plan_bytes)) {
    return absl::InternalError("the daemon's answer holds no plan");
  }
  if (PlanDigest(wire) != result.digest) {
    return absl::InternalError("the digest is not that of the plan");
  }
  absl::StatusOr<Plan> plan = PlanFromProto(wire);
  if (!plan.ok()) return plan.status();
  absl::Status checked = CheckPlan(job, lengths, *plan);
  if (checked.ok()) return checked;
  return absl::InternalError(
      absl::StrCat("an illegal plan: ", std::string(checked.message())));
}

void Add(const PlanResult& result, PolicySum* sum) {
  const PlanFigures& figures = result.figures;
  sum->predicted_seconds += figures.predicted_seconds;
  sum->micro_batch_count += figures.micro_batch_count;
  sum->sharded_token_count += figures.sharded_token_count;
  sum->max_rank_tokens =
      std::max(sum->max_rank_tokens, figures.max_rank_tokens);
  if (result.planning_seconds) {
    sum->planning_seconds.push_back(*result.planning_seconds);
  }
}

// The batch can never fit the job: an answer, not a failure.
bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

absl::StatusOr<Outcome> Run(PlannerClient& client, const Workload& workload) {
  absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(workload.job_text);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<Job> job = JobFromProto(*spec);
  if (!job.ok()) return job.status();
  const std::string name =
      absl::StrCat(workload.job_name, ".", workload.list_name);
  absl::StatusOr<JobInfo> registered =
      client.CreateJob(name, workload.job_text);
  if (!registered.ok()) return registered.status();

  Outcome outcome;
  outcome.bucket_size = job->bucket_size();
  const struct {
    const char* policy;
    PolicySum* sum;
  } policies[] = {{"POLICY_SKRULL", &outcome.skrull},
                  {"POLICY_STATIC_CP", &outcome.static_cp},
                  {"POLICY_PACKED_STATIC_CP", &outcome.packed_static_cp},
                  {"POLICY_OPTIMIZED", &outcome.optimized}};

  const auto count = static_cast<int64_t>(workload.lengths.size());
  for (int64_t step = 0; step < workload.max_batches; ++step) {
    const int64_t begin = step * workload.batch_size;
    if (begin >= count) break;
    const int64_t end = std::min(begin + workload.batch_size, count);
    const std::vector<int64_t> lengths(workload.lengths.begin() + begin,
                                       workload.lengths.begin() + end);
    bool refused = false;
    for (const auto& [policy, sum] : policies) {
      absl::StatusOr<PlanResult> result =
          client.PlanBatch({.job = name,
                            .generation = registered->generation,
                            .step = step,
                            .lengths = lengths,
                            .policy = policy,
                            .validate_only = sum != &outcome.skrull});
      if (!result.ok() && IsRefusal(result.status())) {
        if (outcome.refused_batches == 0) {
          outcome.refusal = absl::StrCat(
              "batch ", step, ": ", std::string(result.status().message()));
        }
        ++outcome.refused_batches;
        refused = true;
        break;  // what fits a job does not depend on the policy
      }
      if (!result.ok()) return result.status();
      absl::Status checked = Check(*job, lengths, *result);
      if (!checked.ok()) return checked;
      Add(*result, sum);
    }
    if (refused) continue;
    ++outcome.planned_batches;
    for (const int64_t length : lengths) outcome.token_count += length;
  }
  return outcome;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  return text.str();
}

absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path) {
  absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  std::vector<int64_t> lengths;
  std::istringstream lines(*text);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    int64_t length = 0;
    if (!absl::SimpleAtoi(line, &length)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": not a length: ", line));
    }
    lengths.push_back(length);
  }
  if (lengths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no length"));
  }
  return lengths;
}

}  // namespace skrull::demo
