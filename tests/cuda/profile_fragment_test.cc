// The fragment that skrull-profile writes, and its tables.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "skrull/client/local_planner.h"
#include "skrull/cuda/examples/model_truth/statistics.h"
#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/cuda/profile/fragment.h"
#include "skrull/cuda/profile/report.h"
#include "skrull/tests/cuda/profile_plans.h"

namespace skrull::profile {

TEST_CASE("Fragment: the planner reads back every number", "[profile]") {
  // Found by what the planner predicts of one sequence on two ranks, which is
  // the sum of all terms when nothing hides the exchange.
  const CostForm form = CostForm::Of(true, 2);
  const double flop = 1.0 / 3e12;
  const double half = 123.456789012345;
  const double overhead = 0.1 + 1e-17;
  const double latency = 1.7e-5;
  const double per_byte = 1e-10 / 3;
  const std::string job =
      ModelText(kTrainerModel) + MemoryText({.bucket_size_tokens = 5000}) +
      CostText({.form = form,
                .seconds_per_flop = flop,
                .efficiency_half_tokens = half,
                .seconds_per_micro_batch = overhead,
                .backward_forward_ratio = 2.5,
                .intra_node = {{.seconds_per_collective = latency,
                                .seconds_per_byte = per_byte}}});
  const auto planner = LocalPlanner::Create(job + "parallelism { cp_size: 2 }");
  INFO(job << planner.status());
  REQUIRE(planner.ok());
  const auto plan =
      (*planner)->PlanBatch({.lengths = {4096}, .policy = "POLICY_STATIC_CP"});
  REQUIRE(plan.ok());
  const std::vector<Share> shares = {{.tokens = 4096, .degree = 2}};
  const Unknowns compute = ComputeTerms(kTrainerModel, form, shares);
  const Unknowns exchange = ExchangeTerms(kTrainerModel, form, shares);
  CHECK(plan->figures.predicted_seconds ==
        Approx(flop * compute[0] + flop * half * compute[1] + overhead +
               latency * exchange[0] + per_byte * exchange[1])
            .epsilon(1e-12));
}

TEST_CASE("Fragment: memory, tables and both links", "[profile]") {
  const LinkNumbers table = {
      .table = {{.bytes = 4096, .seconds = 1e-5}, {8192, 1.5e-5}}};
  const CostNumbers cost = {.form = CostForm::Of(false, 4),
                            .seconds_per_flop = 1e-12,
                            .intra_node = table,
                            .inter_node = {{.seconds_per_byte = 1e-9}}};
  const std::string job = ModelText(kTrainerModel) +
                          MemoryText({.device_bytes = 1'000'000,
                                      .static_bytes = 200'000,
                                      .bytes_per_token = 1000,
                                      .gather_bytes_per_token = 10,
                                      .reserve_fraction = 0.1}) +
                          CostText(cost);
  // (1,000,000 * 0.9 - 200,000) / 1000 = 700 tokens.
  CHECK(PlanWith(job, {700}).figures.max_rank_tokens <= 700);
  const auto planner = LocalPlanner::Create(job);
  REQUIRE(planner.ok());
  CHECK((*planner)->PlanBatch({.lengths = {700}}).ok());
  CHECK_FALSE((*planner)->PlanBatch({.lengths = {701}}).ok());
  CHECK_THAT(job, Catch::Contains("table { bytes: 4096 seconds: 1e-05 }") &&
                      Catch::Contains("inter_node {"));
}

TEST_CASE("Fit: predicts plans in the order of what made its measurements",
          "[profile]") {
  // A machine of these coefficients, measured with 5 percent of noise.
  const CostForm form = CostForm::Of(false, 4);
  const CostNumbers truth = {.form = form,
                             .seconds_per_flop = 2e-10,
                             .efficiency_half_tokens = 60,
                             .seconds_per_micro_batch = 4e-4,
                             .intra_node = {{.seconds_per_collective = 2e-5,
                                             .seconds_per_byte = 1e-9}}};
  std::mt19937 random(9);
  std::normal_distribution<double> noise(0, 0.05);
  std::vector<MeasuredMicroBatch> measured;
  for (const ComputeCase& c : ComputeCases(16, 2048, std::vector{2, 4})) {
    const Unknowns terms = ComputeTerms(kTrainerModel, form, c.shares);
    measured.push_back(
        {.label = c.label,
         .shares = c.shares,
         .compute_seconds = (2e-10 * terms[0] + 2e-10 * 60 * terms[1] + 4e-4) *
                            (1 + noise(random))});
  }
  const LinearFit fit =
      FitCompute(kTrainerModel, form, measured, kMaxMeanError);
  REQUIRE(fit.verdict.ok());
  Coefficients found;
  SetCompute(fit, &found);
  CostNumbers fitted = truth;
  fitted.seconds_per_flop = found.seconds_per_flop;
  fitted.efficiency_half_tokens = found.efficiency_half_tokens;
  fitted.seconds_per_micro_batch = found.seconds_per_micro_batch;

  const std::string job =
      ModelText(kTrainerModel) + MemoryText({.bucket_size_tokens = 1500});
  std::vector<double> predicted;
  std::vector<double> real;
  for (int batch = 0; batch < 10; ++batch) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 12; ++i) {
      lengths.push_back(static_cast<int64_t>(16 * std::exp2(random() % 7)));
    }
    for (const char* policy :
         {"POLICY_STATIC_CP", "POLICY_PACKED_STATIC_CP", "POLICY_SKRULL"}) {
      predicted.push_back(PlanWith(job + CostText(fitted), lengths, policy)
                              .figures.predicted_seconds);
      real.push_back(PlanWith(job + CostText(truth), lengths, policy)
                         .figures.predicted_seconds);
    }
  }
  CHECK(examples::Spearman(predicted, real) > 0.99);
}

TEST_CASE("FitText: coefficients, residuals and verdict", "[profile]") {
  LinearFit fit;
  fit.unknowns = {{.name = "seconds_per_flop"}};
  fit.value = {2e-10, 0, 0};
  fit.standard_error = {1e-12, 0, 0};
  fit.residuals = {{.label = "8 x 512", .measured = 0.5, .predicted = 0.6}};
  fit.mean_error = fit.worst_error = 0.2;
  CHECK_THAT(FitText(fit),
             Catch::Contains("seconds_per_flop") && Catch::Contains("2e-10") &&
                 Catch::Contains("1e-12") && Catch::Contains("8 x 512") &&
                 Catch::Contains("+20.0%") && Catch::Contains("accepted"));
  fit.verdict = exec::InvalidArgument("too bad");
  CHECK_THAT(FitText(fit), Catch::Contains("refused, too bad"));
}

}  // namespace skrull::profile
