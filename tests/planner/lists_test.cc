// Real and synthetic lists of lengths: the shipped ones, and those of the
// shared data folder where it exists. Every consecutive batch of 256, with each
// job file and policy.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchSize = 256;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> FilesIn(const fs::path& folder, const char* extension) {
  std::vector<fs::path> files;
  if (fs::is_directory(folder)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == extension) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::map<std::string, Job> ReadJobs(const fs::path& folder) {
  std::map<std::string, Job> jobs;
  for (const fs::path& path : FilesIn(folder, ".textproto")) {
    const absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(ReadFile(path));
    INFO(path << ": " << spec.status());
    REQUIRE(spec.ok());
    absl::StatusOr<Job> job = JobFromProto(*spec);
    REQUIRE(job.ok());
    jobs.emplace(path.stem().string(), *job);
  }
  return jobs;
}

std::vector<int64_t> ReadLengths(const fs::path& path) {
  std::vector<int64_t> lengths;
  std::ifstream file(path);
  for (int64_t length = 0; file >> length;) lengths.push_back(length);
  INFO(path);
  REQUIRE(file.eof());
  REQUIRE(!lengths.empty());
  return lengths;
}

// Plans and checks every batch; the sum of predicted seconds of those planned.
double PlanList(const Job& job, const std::vector<int64_t>& lengths,
                Policy policy) {
  double seconds = 0;
  const int64_t limit = job.bucket_size() * job.pool().cp_size;
  for (size_t at = 0; at < lengths.size(); at += kBatchSize) {
    const std::span<const int64_t> batch = std::span(lengths).subspan(
        at, std::min(kBatchSize, lengths.size() - at));
    const absl::StatusOr<Plan> plan =
        MakePlan(job, batch, {.key = {}, .policy = policy});
    CAPTURE(at, plan.status().ToString());
    // All jobs here are of scope GROUP; chunks hold what no group does.
    if (policy != Policy::kChunkFlow &&
        *std::max_element(batch.begin(), batch.end()) > limit) {
      REQUIRE(plan.status().code() == absl::StatusCode::kFailedPrecondition);
      continue;
    }
    REQUIRE(plan.ok());
    REQUIRE(CheckPlan(job, batch, *plan) == absl::OkStatus());
    REQUIRE(plan->summary.predicted_seconds >=
            plan->summary.lower_bound_seconds * (1 - 1e-9));
    seconds += plan->summary.predicted_seconds;
  }
  return seconds;
}

void PlanFolders(const fs::path& jobs_folder, const fs::path& lists_folder) {
  const std::map<std::string, Job> jobs = ReadJobs(jobs_folder);
  REQUIRE(jobs.size() >= 3);
  for (const fs::path& list : FilesIn(lists_folder, ".txt")) {
    const std::vector<int64_t> lengths = ReadLengths(list);
    for (const auto& [name, job] : jobs) {
      std::map<Policy, double> seconds;
      for (const Policy policy : AllPolicies()) {
        CAPTURE(list, name, PolicyName(policy));
        seconds[policy] = PlanList(job, lengths, policy);
      }
      CAPTURE(list, name);
      CHECK(seconds[Policy::kSkrull] <= seconds[Policy::kStaticCp]);
      CHECK(seconds[Policy::kPackedStaticCp] <= seconds[Policy::kStaticCp]);
    }
  }
}

TEST_CASE("Planner: without roll-back ChatQA2 runs out of memory",
          "[planner][lists]") {
  // The paper's case study: Qwen2.5-0.5B, one DP rank, CP 8, 64 sequences.
  const fs::path examples = SKRULL_EXAMPLES_DIR;
  absl::StatusOr<v1::JobSpec> spec =
      ParseJobSpecText(ReadFile(examples / "jobs" / "qwen2.5-0.5b.textproto"));
  REQUIRE(spec.ok());
  spec->mutable_parallelism()->set_dp_size(1);
  const Job with = JobFromProto(*spec).value();
  spec->mutable_heuristic()->set_roll_back(false);
  const Job without = JobFromProto(*spec).value();
  const std::vector<int64_t> lengths =
      ReadLengths(examples / "lengths" / "chatqa2.txt");
  constexpr size_t kCaseStudyBatch = 64;
  REQUIRE(lengths.size() >= 10 * kCaseStudyBatch);
  for (size_t at = 0; at + kCaseStudyBatch <= lengths.size();
       at += kCaseStudyBatch) {
    const std::span<const int64_t> batch =
        std::span(lengths).subspan(at, kCaseStudyBatch);
    for (const Policy policy : {Policy::kSkrull, Policy::kRoundRobin}) {
      CAPTURE(at, PolicyName(policy));
      const PlanOptions options{.key = {}, .policy = policy};
      REQUIRE(MakePlan(with, batch, options).ok());
      const absl::Status status = MakePlan(without, batch, options).status();
      REQUIRE(GetErrorDetail(status).has_value());
      REQUIRE(GetErrorDetail(status)->reason == ErrorReason::kSimulatedOom);
    }
  }
}

TEST_CASE("Planner: every batch of the shipped lists", "[planner][lists]") {
  const fs::path examples = SKRULL_EXAMPLES_DIR;
  REQUIRE(FilesIn(examples / "lengths", ".txt").size() == 3);
  PlanFolders(examples / "jobs", examples / "lengths");
}

TEST_CASE("Planner: every batch of the shared lists", "[planner][lists]") {
  const char* variable = std::getenv("SKRULL_SHARED_DATA");
  const fs::path shared =
      variable != nullptr ? fs::path(variable) : fs::path(SKRULL_SHARED_DATA);
  for (const char* name : {"chatqa2", "code_systems", "cpp_docs", "lmsyschat1m",
                           "mooncake_conversation", "qmsum", "wikipedia"}) {
    const fs::path list = shared / "lengths" / (std::string(name) + ".txt");
    if (!fs::exists(list)) WARN("not tested, not found: " << list);
  }
  if (!fs::is_directory(shared / "jobs")) return;
  PlanFolders(shared / "jobs", shared / "lengths");
}

}  // namespace
}  // namespace skrull
