// Time of the planner, single thread: see docs/benchmarks.md for what each row
// means. Every plan is checked once, outside the timed loop.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"

namespace skrull {
namespace {

// The paper's Qwen2.5-0.5B job on any pool.
Job PaperJob(int32_t dp_size, int32_t cp_size,
             BlockScope scope = BlockScope::kGroup) {
  JobSpec spec;
  spec.model.hidden_size = 896;
  spec.model.layer_count = 24;
  spec.model.kv_head_count = 2;
  spec.model.head_dim = 64;
  spec.parallelism.dp_size = dp_size;
  spec.parallelism.cp_size = cp_size;
  spec.parallelism.ranks_per_node = 8;
  spec.parallelism.block_scope = scope;
  spec.memory.bucket_size_tokens = 26624;
  spec.cost.seconds_per_micro_batch = 0.035;
  spec.cost.intra_node.seconds_per_collective = 4.1e-5;
  spec.cost.intra_node.seconds_per_byte = 6e-12;
  return *Job::Create(spec);
}

// `count` lengths of a shipped list, over and over; those no CP group of the
// job holds are left out.
std::vector<int64_t> Lengths(const std::string& list, int64_t count,
                             const Job& job) {
  const std::string path =
      std::string(SKRULL_LENGTHS_DIR) + "/" + list + ".txt";
  std::ifstream file(path);
  std::vector<int64_t> all;
  for (int64_t length = 0; file >> length;) {
    if (length <= job.longest_sequence()) all.push_back(length);
  }
  if (all.empty()) {
    std::cerr << "no lengths in " << path << "\n";
    std::exit(1);
  }
  std::vector<int64_t> lengths(static_cast<size_t>(count));
  for (size_t k = 0; k < lengths.size(); ++k) lengths[k] = all[k % all.size()];
  return lengths;
}

void Plan(benchmark::State& state, const std::string& list, Policy policy,
          int32_t dp_size, int32_t cp_size, BlockScope scope) {
  const Job job = PaperJob(dp_size, cp_size, scope);
  const std::vector<int64_t> lengths = Lengths(list, state.range(0), job);
  const auto plan = MakePlan(job, lengths, {.key = {}, .policy = policy});
  if (!plan.ok() || !CheckPlan(job, lengths, *plan).ok()) {
    state.SkipWithError("the plan is refused or illegal");
    return;
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        MakePlan(job, lengths, {.key = {}, .policy = policy}));
  }
  state.SetComplexityN(state.range(0));
  state.counters["micro_batches"] =
      static_cast<double>(plan->summary.micro_batch_count);
  state.counters["gap"] =
      plan->summary.predicted_seconds / plan->summary.lower_bound_seconds - 1;
}

void Check(benchmark::State& state, int32_t dp_size, int32_t cp_size) {
  const Job job = PaperJob(dp_size, cp_size);
  const std::vector<int64_t> lengths =
      Lengths("wikipedia", state.range(0), job);
  const auto plan = MakePlan(job, lengths, {});
  for (auto _ : state) {
    benchmark::DoNotOptimize(CheckPlan(job, lengths, *plan));
  }
}

void RegisterAll() {
  for (const std::string list : {"wikipedia", "lmsyschat1m", "chatqa2"}) {
    for (const Policy policy : AllPolicies()) {
      benchmark::RegisterBenchmark(
          ("Plan/" + PolicyName(policy) + "/" + list + "/dp4_cp8").c_str(),
          [=](benchmark::State& state) {
            Plan(state, list, policy, 4, 8, BlockScope::kGroup);
          })
          ->Arg(256)
          ->Unit(benchmark::kMicrosecond);
    }
    // The optimizer with blocks across DP ranks, on growing pools.
    const struct {
      int32_t dp_size, cp_size;
      int64_t count;
    } pools[] = {{4, 8, 256}, {64, 8, 4096}, {128, 16, 65536}};
    for (const auto& [dp_size, cp_size, count] : pools) {
      benchmark::RegisterBenchmark(
          ("Pool/POLICY_OPTIMIZED/" + list + "/dp" + std::to_string(dp_size) +
           "_cp" + std::to_string(cp_size))
              .c_str(),
          [=, dp = dp_size, cp = cp_size](benchmark::State& state) {
            Plan(state, list, Policy::kOptimized, dp, cp, BlockScope::kPool);
          })
          ->Arg(count)
          ->Unit(benchmark::kMicrosecond);
    }
    // One pool for all sizes, so that only the batch grows.
    benchmark::RegisterBenchmark(
        ("Growth/POLICY_SKRULL/" + list + "/dp128_cp16").c_str(),
        [=](benchmark::State& state) {
          Plan(state, list, Policy::kSkrull, 128, 16, BlockScope::kGroup);
        })
        ->RangeMultiplier(4)
        ->Range(256, 65536)
        ->Unit(benchmark::kMicrosecond)
        ->Complexity(benchmark::oNLogN);
  }
  benchmark::RegisterBenchmark(
      "Check/wikipedia/dp4_cp8",
      [](benchmark::State& state) { Check(state, 4, 8); })
      ->Arg(256)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(
      "Check/wikipedia/dp128_cp16",
      [](benchmark::State& state) { Check(state, 128, 16); })
      ->Arg(65536)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  skrull::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
