// The fit of the cost model's coefficients, against the planner's own formulas.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "skrull/client/local_planner.h"
#include "skrull/cuda/examples/cpu_trainer/job_text.h"
#include "skrull/cuda/examples/cpu_trainer/step_log.h"
#include "skrull/cuda/examples/model_truth/calibration.h"
#include "skrull/cuda/examples/model_truth/statistics.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::examples {
namespace {

// What the planner says of one sequence under static CP.
PlanResult PlanOf(const ModelConfig& model, int32_t cp_size,
                  const profile::Coefficients& cost, int64_t tokens) {
  const auto planner = LocalPlanner::Create(JobText(
      model, {.dp_size = 1, .cp_size = cp_size, .bucket_size_tokens = 100'000},
      cost));
  INFO(planner.status());
  REQUIRE(planner.ok());
  const auto plan = (*planner)->PlanBatch(
      {.lengths = {tokens}, .policy = "POLICY_STATIC_CP"});
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace

TEST_CASE("Spearman: by hand", "[model_truth]") {
  CHECK(Spearman({1, 2, 3, 4}, {10, 20, 30, 1000}) == Approx(1));
  CHECK(Spearman({1, 2, 3, 4}, {4, 3, 2, 1}) == Approx(-1));
  // 1 - 6 * (1 + 1) / (4 * 15).
  CHECK(Spearman({1, 2, 3, 4}, {2, 1, 3, 4}) == Approx(0.8));
  CHECK(Spearman({5, 5, 5}, {1, 2, 3}) == 0);
  // Ranks 0.5, 0.5, 2 against 0, 1, 2: 1.5 / sqrt(1.5 * 2).
  CHECK(Spearman({7, 7, 9}, {1, 2, 3}) == Approx(std::sqrt(0.75)));
}

TEST_CASE("FitAll: gives back the coefficients that the planner used",
          "[model_truth]") {
  const ModelConfig model = {.layer_count = 3,
                             .hidden_size = 40,
                             .q_heads = 6,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .intermediate_size = 56,
                             .vocab_size = 100};
  const profile::Coefficients cost = {.seconds_per_flop = 3e-10,
                                      .efficiency_half_tokens = 70,
                                      .seconds_per_micro_batch = 2e-3,
                                      .seconds_per_collective = 4e-5,
                                      .seconds_per_byte = 7e-9};
  profile::Coefficients free_links = cost;
  free_links.seconds_per_collective = 0;
  free_links.seconds_per_byte = 0;
  std::vector<profile::MeasuredMicroBatch> measured;
  for (const int32_t cp_size : {1, 4}) {
    for (const int64_t tokens : {4, 60, 300, 2000, 8000}) {
      const PlanResult plan = PlanOf(model, cp_size, cost, tokens);
      const double compute =
          PlanOf(model, cp_size, free_links, tokens).figures.predicted_seconds;
      const auto share = RankPlanOf(plan, 0);
      REQUIRE(share.ok());
      RankSeconds seconds;
      seconds.rest = compute / 3;
      seconds.local_attention = compute / 6;
      seconds.sharded_attention = compute / 2;
      // Under static CP nothing hides the exchange.
      seconds.exchange = plan.figures.predicted_seconds - compute;
      measured.push_back(ToMeasured(share->micro_batches[0], seconds));
    }
  }
  // A micro-batch without rows says nothing.
  measured.push_back({});
  const auto found = FitAll(model, measured);
  REQUIRE(found.ok());
  const profile::Coefficients fitted = *found;
  CHECK(fitted.seconds_per_flop == Approx(3e-10).epsilon(1e-6));
  CHECK(fitted.efficiency_half_tokens == Approx(70).epsilon(1e-6));
  CHECK(fitted.seconds_per_micro_batch == Approx(2e-3).epsilon(1e-6));
  CHECK(fitted.seconds_per_collective == Approx(4e-5).epsilon(1e-6));
  CHECK(fitted.seconds_per_byte == Approx(7e-9).epsilon(1e-6));
}

TEST_CASE("skrull_model_truth: calibrates, plans, trains and compares",
          "[model_truth]") {
  const auto run = [](std::vector<std::string> flags) {
    std::vector<std::string> argv = {SKRULL_MODEL_TRUTH_PATH, "--lengths",
                                     SKRULL_LENGTHS_PATH};
    argv.insert(argv.end(), flags.begin(), flags.end());
    skrull::testing::Process process(argv);
    const int code = process.Wait();
    return std::pair(code, process.Output());
  };
  const auto [code, output] =
      run({"--batches", "2", "--calibration-batches", "1", "--batch-size", "6",
           "--repeats", "1", "--scale", "64"});
  INFO(output);
  CHECK(code == 0);
  CHECK_THAT(output, Catch::Contains("seconds_per_flop") &&
                         Catch::Contains("POLICY_OPTIMIZED") &&
                         Catch::Contains("Spearman over all steps"));
  const auto [refused, why] = run({"--batches", "60000"});
  CHECK(refused == 1);
  CHECK_THAT(why, Catch::Contains("lengths of"));
  CHECK(run({"--repeats", "0"}).first == 2);
}

}  // namespace skrull::examples
