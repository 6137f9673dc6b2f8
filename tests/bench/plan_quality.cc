// How good POLICY_OPTIMIZED's plans are, and how long they take: the tables of
// docs/benchmarks.md, in Markdown on standard output.
// Usage: plan_quality JOBS_DIR LENGTHS_DIR...
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"
#include "skrull/tests/planner/exact_optimum.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;
using Lengths = std::vector<int64_t>;

constexpr size_t kBatches = 20;  // of each list
constexpr size_t kBatchSize = 256;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "plan_quality: %s\n", what.c_str());
  std::exit(1);
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  if (!file) Die("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

v1::JobSpec ReadSpec(const fs::path& path) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(ReadFile(path));
  if (!spec.ok()) Die(path.string() + ": " + spec.status().ToString());
  return *spec;
}

Job MakeJob(const v1::JobSpec& spec) {
  const absl::StatusOr<Job> job = JobFromProto(spec);
  if (!job.ok()) Die(job.status().ToString());
  return *job;
}

// Consecutive batches; the last, shorter one is left out.
std::vector<Lengths> Batches(const Lengths& all, size_t size, size_t most) {
  std::vector<Lengths> batches;
  for (size_t i = 0; i + size <= all.size() && batches.size() < most;
       i += size) {
    batches.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i),
                         all.begin() + static_cast<std::ptrdiff_t>(i + size));
  }
  return batches;
}

struct List {
  std::string name;
  Lengths lengths;
  double target = 0;  // mean gap, percent; 0 = none
};

double TargetOf(const std::string& list) {
  if (list == "wikipedia" || list == "lmsyschat1m") return 2;
  if (list == "code_systems" || list == "chatqa2" || list == "qmsum") return 5;
  if (list == "mooncake_conversation") return 8;
  return list == "cpp_docs" ? 10 : 0;
}

// 255 log-normal lengths (mu 7.6, sigma 1.2, 64 .. 65536) and one of 131072,
// 20 times, seeds 1 .. 20.
List OutlierList() {
  List list{.name = "log-normal + 131072", .lengths = {}, .target = 10};
  for (unsigned seed = 1; seed <= kBatches; ++seed) {
    std::mt19937_64 engine(seed);
    std::lognormal_distribution<double> draw(7.6, 1.2);
    for (size_t k = 0; k + 1 < kBatchSize; ++k) {
      list.lengths.push_back(
          static_cast<int64_t>(std::clamp(draw(engine), 64.0, 65536.0)));
    }
    list.lengths.push_back(131072);
  }
  return list;
}

double Mean(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

double Most(std::span<const double> values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Outcome {
  Plan plan;
  double milliseconds = 0;
};

// Plans and checks; the least time of `repeats`.
Outcome PlanBatch(const Job& job, const Lengths& lengths, Policy policy,
                  int repeats) {
  Outcome outcome;
  outcome.milliseconds = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<Plan> plan =
        MakePlan(job, lengths, {.key = {}, .policy = policy});
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - start;
    if (!plan.ok()) Die(plan.status().ToString());
    outcome.milliseconds = std::min(outcome.milliseconds, took.count());
    outcome.plan = *std::move(plan);
  }
  if (const absl::Status status = CheckPlan(job, lengths, outcome.plan);
      !status.ok()) {
    Die(status.ToString());
  }
  return outcome;
}

double GapPercent(const Plan& plan) {
  return 100 *
         (plan.summary.predicted_seconds / plan.summary.lower_bound_seconds -
          1);
}

v1::JobSpec WithScope(v1::JobSpec spec, v1::BlockScope scope) {
  spec.mutable_parallelism()->set_block_scope(scope);
  return spec;
}

// Sequences that no block of the job holds cannot be planned; their batches
// are left out.
std::vector<Lengths> Placeable(const Job& job, std::vector<Lengths> batches) {
  std::erase_if(batches, [&](const Lengths& lengths) {
    return !CheckBatch(job, lengths).ok();
  });
  return batches;
}

struct Run {
  std::string job_name;
  v1::JobSpec spec;
  const List* list;
  std::vector<Lengths> batches;
};

std::vector<Run> Runs(const fs::path& jobs_dir, const std::vector<List>& lists,
                      v1::BlockScope scope) {
  std::vector<Run> runs;
  for (const char* size : {"0.5b", "7b"}) {
    for (const List& list : lists) {
      std::string name = std::string("qwen2.5-") + size;
      size_t batch = kBatchSize;
      if (list.name == "chatqa2" && name == "qwen2.5-7b") {
        name += "-chatqa2";
        batch = 80;
      }
      const v1::JobSpec spec =
          WithScope(ReadSpec(jobs_dir / (name + ".textproto")), scope);
      std::vector<Lengths> batches =
          Placeable(MakeJob(spec), Batches(list.lengths, batch, kBatches));
      if (!batches.empty()) runs.push_back({name, spec, &list, batches});
    }
  }
  return runs;
}

// Gap to the bound and time, scope POOL.
void PrintGaps(const std::vector<Run>& runs) {
  std::printf(
      "| job | list | batches | gap, mean | target | gap, worst | median time "
      "| worst time |\n|---|---|--:|--:|--:|--:|--:|--:|\n");
  std::vector<double> all_times;
  for (const Run& run : runs) {
    const Job job = MakeJob(run.spec);
    std::vector<double> gaps;
    std::vector<double> times;
    for (const Lengths& lengths : run.batches) {
      const Outcome outcome =
          PlanBatch(job, lengths, Policy::kOptimized, /*repeats=*/3);
      gaps.push_back(GapPercent(outcome.plan));
      times.push_back(outcome.milliseconds);
    }
    if (job.pool().dp_size == 4) {
      all_times.insert(all_times.end(), times.begin(), times.end());
    }
    std::printf(
        "| %s | %s | %zu | %.2f %% | %.0f %% | %.2f %% | %.2f ms | %.2f ms |\n",
        run.job_name.c_str(), run.list->name.c_str(), run.batches.size(),
        Mean(gaps), run.list->target, Most(gaps), Median(times), Most(times));
    std::fflush(stdout);
  }
  std::printf(
      "\n256 lengths on 4 x 8, all lists together: median %.2f ms (target 1), "
      "worst %.2f ms (target 5).\n",
      Median(all_times), Most(all_times));
}

// The default budget against a thousand times as much.
void PrintBudgets(const std::vector<Run>& runs) {
  std::vector<double> excess;
  for (size_t i = 0; excess.size() < 50; ++i) {
    size_t planned = 0;
    for (const Run& run : runs) {
      if (i >= run.batches.size() || excess.size() == 50) continue;
      ++planned;
      const Job job = MakeJob(run.spec);
      v1::JobSpec spec = run.spec;
      spec.mutable_optimizer()->set_search_steps(1000 * job.search_steps());
      const double usual = PlanBatch(job, run.batches[i], Policy::kOptimized, 1)
                               .plan.summary.predicted_seconds;
      const double long_run =
          PlanBatch(MakeJob(spec), run.batches[i], Policy::kOptimized, 1)
              .plan.summary.predicted_seconds;
      excess.push_back(100 * (usual / long_run - 1));
    }
    if (planned == 0) break;
  }
  std::printf(
      "\nDefault search_steps against 1,000 times as many, %zu batches of all "
      "lists in turn: %.2f %% slower on average (target 2), %.2f %% at "
      "most.\n",
      excess.size(), Mean(excess), Most(excess));
}

// Scope GROUP: how often another policy beats it.
void PrintNeverWorse(const std::vector<Run>& runs) {
  int batches = 0;
  int worse = 0;
  for (const Run& run : runs) {
    const Job job = MakeJob(run.spec);
    for (const Lengths& lengths : run.batches) {
      ++batches;
      const double seconds = PlanBatch(job, lengths, Policy::kOptimized, 1)
                                 .plan.summary.predicted_seconds;
      for (const Policy other :
           {Policy::kSkrull, Policy::kStaticCp, Policy::kPackedStaticCp}) {
        if (PlanBatch(job, lengths, other, 1).plan.summary.predicted_seconds <
            seconds) {
          ++worse;
        }
      }
    }
  }
  std::printf(
      "\nScope GROUP, %d batches: slower than POLICY_SKRULL or a static policy "
      "on %d (target 0).\n",
      batches, worse);
}

// Random batches of at most eight sequences on four ranks against the optimum.
void PrintOptimum() {
  constexpr int kRuns = 3000;
  constexpr int64_t kMostNodes = 3'000'000;
  testing::Random random(1);
  std::vector<double> excess;
  for (int run = 0; run < kRuns; ++run) {
    const Job job = testing::MakeJob(testing::RandomFourRanks(random));
    const Lengths lengths = testing::FewLengths(random, job, 8);
    const double seconds = PlanBatch(job, lengths, Policy::kOptimized, 1)
                               .plan.summary.predicted_seconds;
    const std::optional<double> exact =
        testing::ExactOptimum(job, lengths, seconds, kMostNodes);
    if (exact && *exact > 0) excess.push_back(100 * (seconds / *exact - 1));
  }
  std::printf(
      "\nAgainst the exact optimum, %zu of %d random batches of at most 8 "
      "sequences on 4 ranks: %.4f %% slower on average (target 1), %.2f %% at "
      "most (target 10).\n",
      excess.size(), kRuns, Mean(excess), Most(excess));
}

// Growing pools: time and gap.
void PrintGrowth(const fs::path& jobs_dir, const std::vector<List>& lists) {
  const struct {
    int32_t dp_size, cp_size;
    size_t count;
    const char* target;
  } pools[] = {{4, 8, 256, "1 ms median"},
               {64, 8, 4096, "50 ms"},
               {128, 16, 65536, "1.5 s"}};
  std::printf(
      "\n| lengths | pool | list | time | target | gap |\n"
      "|--:|---|---|--:|--:|--:|\n");
  for (const auto& [dp_size, cp_size, count, target] : pools) {
    for (const List& list : lists) {
      v1::JobSpec spec = WithScope(
          ReadSpec(jobs_dir / "qwen2.5-0.5b.textproto"), v1::BLOCK_SCOPE_POOL);
      spec.mutable_parallelism()->set_dp_size(dp_size);
      spec.mutable_parallelism()->set_cp_size(cp_size);
      const Job job = MakeJob(spec);
      Lengths lengths(count);
      size_t next = 0;
      for (int64_t& length : lengths) {
        do {
          length = list.lengths[next++ % list.lengths.size()];
        } while (length > job.longest_sequence());
      }
      const Outcome outcome =
          PlanBatch(job, lengths, Policy::kOptimized, count > 10000 ? 1 : 3);
      std::printf("| %zu | %d x %d | %s | %.2f ms | %s | %.2f %% |\n", count,
                  dp_size, cp_size, list.name.c_str(), outcome.milliseconds,
                  target, GapPercent(outcome.plan));
      std::fflush(stdout);
    }
  }
}

int Main(const fs::path& jobs_dir, const std::vector<fs::path>& folders) {
  std::vector<List> lists;
  for (const fs::path& folder : folders) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& path : files) {
      const std::string name = path.stem().string();
      if (std::any_of(lists.begin(), lists.end(),
                      [&](const List& list) { return list.name == name; })) {
        continue;
      }
      List list{.name = name, .lengths = {}, .target = TargetOf(name)};
      std::ifstream file(path);
      for (int64_t length = 0; file >> length;) list.lengths.push_back(length);
      if (!list.lengths.empty()) lists.push_back(std::move(list));
    }
  }
  if (lists.empty()) Die("no lists of lengths found");
  lists.push_back(OutlierList());
  const std::vector<Run> pool = Runs(jobs_dir, lists, v1::BLOCK_SCOPE_POOL);
  PrintGaps(pool);
  PrintNeverWorse(Runs(jobs_dir, lists, v1::BLOCK_SCOPE_GROUP));
  PrintOptimum();
  PrintGrowth(jobs_dir, lists);
  PrintBudgets(pool);
  return 0;
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: plan_quality JOBS_DIR LENGTHS_DIR...\n");
    return 2;
  }
  return skrull::Main(argv[1], {argv + 2, argv + argc});
}
