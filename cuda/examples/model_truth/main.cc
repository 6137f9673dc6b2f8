// How well does the cost model tell what a step takes? Fits its coefficients
// on some batches of a list, then compares predicted and measured step time of
// others, under each policy. docs/benchmarks.md explains the figures.
//
// Ranks are threads that share the machine's cores, so each one's work is
// measured in CPU seconds of its threads, best of several runs, and the step is
// composed of them as if every thread had a core.
//
// Exit 0: measured; 1: something failed; 2: usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "skrull/client/local_planner.h"
#include "skrull/cuda/examples/cpu_trainer/batch.h"
#include "skrull/cuda/examples/cpu_trainer/job_text.h"
#include "skrull/cuda/examples/cpu_trainer/rank_threads.h"
#include "skrull/cuda/examples/cpu_trainer/rank_trainer.h"
#include "skrull/cuda/examples/cpu_trainer/step_log.h"
#include "skrull/cuda/examples/cpu_trainer/step_time.h"
#include "skrull/cuda/examples/model_truth/calibration.h"
#include "skrull/cuda/examples/model_truth/statistics.h"

namespace skrull::examples {
namespace {

constexpr const char* kPolicies[] = {"POLICY_STATIC_CP",
                                     "POLICY_PACKED_STATIC_CP", "POLICY_SKRULL",
                                     "POLICY_OPTIMIZED"};

struct Settings {
  std::string lengths_file;
  int64_t scale = 16;
  int32_t batch_size = 32;
  int32_t batches = 50;
  int32_t calibration_batches = 10;
  int32_t repeats = 3;
  JobShape shape = {.dp_size = 2, .cp_size = 4, .bucket_size_tokens = 1200};
  TrainerOptions trainer;

  int32_t ranks() const { return shape.dp_size * shape.cp_size; }
};

using Lengths = std::vector<int64_t>;
using RankTimes = std::vector<std::vector<RankSeconds>>;  // [rank][micro-batch]

struct Measured {
  std::vector<RankPlan> plans;  // [rank]
  RankTimes seconds;
};

absl::StatusOr<PlanResult> PlanOf(const Settings& settings,
                                  const profile::Coefficients& cost,
                                  const std::string& policy,
                                  const Lengths& lengths) {
  const auto planner = LocalPlanner::Create(
      JobText(settings.trainer.model, settings.shape, cost));
  if (!planner.ok()) return planner.status();
  return (*planner)->PlanBatch({.lengths = lengths, .policy = policy});
}

void TakeLeast(const RankSeconds& now, RankSeconds* least) {
  least->local_attention =
      std::min(least->local_attention, now.local_attention);
  least->sharded_attention =
      std::min(least->sharded_attention, now.sharded_attention);
  least->exchange = std::min(least->exchange, now.exchange);
  least->rest = std::min(least->rest, now.rest);
}

// Trains the batch `repeats` times and keeps the least of each time.
absl::StatusOr<Measured> Measure(const Settings& settings,
                                 const PlanResult& plan,
                                 const Lengths& lengths) {
  const auto ranks = static_cast<size_t>(settings.ranks());
  Measured measured;
  for (int32_t rank = 0; rank < settings.ranks(); ++rank) {
    absl::StatusOr<RankPlan> share = RankPlanOf(plan, rank);
    if (!share.ok()) return share.status();
    measured.plans.push_back(*std::move(share));
  }
  measured.seconds.resize(ranks);
  const Batch batch = MakeBatch(lengths, 0, settings.trainer.model.vocab_size);
  const exec::Status status =
      RunRanks(settings.ranks(), [&](int32_t rank, const RankLinks& links) {
        return [&]() -> exec::Status {
          auto trainer = RankTrainer::Create(settings.trainer, links);
          SKRULL_EXEC_RETURN_IF_ERROR(trainer.status());
          const auto r = static_cast<size_t>(rank);
          std::vector<RankSeconds>& least = measured.seconds[r];
          for (int32_t i = 0; i < settings.repeats; ++i) {
            const auto step = (*trainer)->Step(measured.plans[r], batch);
            SKRULL_EXEC_RETURN_IF_ERROR(step.status());
            if (i == 0) least = step->micro_batches;
            for (size_t m = 0; m < least.size(); ++m) {
              TakeLeast(step->micro_batches[m], &least[m]);
            }
          }
          return links.agreement->Agree("done");
        }();
      });
  if (!status.ok()) return absl::InternalError(status.ToString());
  return measured;
}

absl::StatusOr<profile::Coefficients> Calibrate(
    const Settings& settings, const std::vector<Lengths>& batches) {
  std::vector<profile::MeasuredMicroBatch> all;
  for (const Lengths& lengths : batches) {
    for (const char* policy : kPolicies) {
      const auto plan = PlanOf(settings, {}, policy, lengths);
      if (!plan.ok()) return plan.status();
      const auto measured = Measure(settings, *plan, lengths);
      if (!measured.ok()) return measured.status();
      for (size_t r = 0; r < measured->plans.size(); ++r) {
        const auto& micro_batches = measured->plans[r].micro_batches;
        for (size_t i = 0; i < micro_batches.size(); ++i) {
          all.push_back(ToMeasured(micro_batches[i], measured->seconds[r][i]));
        }
      }
    }
  }
  const auto fitted = FitAll(settings.trainer.model, all);
  if (!fitted.ok()) return absl::InternalError(fitted.status().ToString());
  return *fitted;
}

// Predicted and measured seconds of steps, one policy's or all.
struct Truth {
  std::vector<double> predicted;
  std::vector<double> measured;

  void Add(double p, double m) {
    predicted.push_back(p);
    measured.push_back(m);
  }
  static double Mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  double MeanRelativeError(bool absolute) const {
    double sum = 0;
    for (size_t i = 0; i < predicted.size(); ++i) {
      const double error = predicted[i] / measured[i] - 1;
      sum += absolute ? std::abs(error) : error;
    }
    return sum / static_cast<double>(predicted.size());
  }
};

absl::Status Evaluate(const Settings& settings,
                      const profile::Coefficients& cost,
                      const std::vector<Lengths>& batches) {
  std::vector<Truth> by_policy(std::size(kPolicies));
  Truth all;
  double correlation = 0;
  int best = 0;
  double regret = 0;
  for (const Lengths& lengths : batches) {
    Truth batch;
    for (size_t p = 0; p < std::size(kPolicies); ++p) {
      const auto plan = PlanOf(settings, cost, kPolicies[p], lengths);
      if (!plan.ok()) return plan.status();
      const auto measured = Measure(settings, *plan, lengths);
      if (!measured.ok()) return measured.status();
      const double seconds = StepSeconds(measured->plans, measured->seconds,
                                         settings.shape.cp_size);
      const double predicted = plan->figures.predicted_seconds;
      batch.Add(predicted, seconds);
      by_policy[p].Add(predicted, seconds);
      all.Add(predicted, seconds);
    }
    correlation += Spearman(batch.predicted, batch.measured);
    const auto chosen =
        std::min_element(batch.predicted.begin(), batch.predicted.end()) -
        batch.predicted.begin();
    const double least =
        *std::min_element(batch.measured.begin(), batch.measured.end());
    const double got = batch.measured[static_cast<size_t>(chosen)];
    if (got == least) ++best;
    regret += got / least - 1;
  }
  std::printf(
      "| policy | predicted | measured | mean relative error | bias |\n"
      "|---|--:|--:|--:|--:|\n");
  for (size_t p = 0; p < std::size(kPolicies); ++p) {
    const Truth& t = by_policy[p];
    std::printf("| %s | %.2f ms | %.2f ms | %.1f %% | %+.1f %% |\n",
                kPolicies[p], 1e3 * Truth::Mean(t.predicted),
                1e3 * Truth::Mean(t.measured), 100 * t.MeanRelativeError(true),
                100 * t.MeanRelativeError(false));
  }
  const auto count = static_cast<double>(batches.size());
  std::printf(
      "| all | %.2f ms | %.2f ms | %.1f %% | %+.1f %% |\n\n"
      "Spearman over the policies of a batch, mean: %.3f\n"
      "Spearman over all steps: %.3f\n"
      "the policy predicted fastest was fastest in %d of %zu batches, and "
      "%.1f %% slower than the fastest on the mean\n",
      1e3 * Truth::Mean(all.predicted), 1e3 * Truth::Mean(all.measured),
      100 * all.MeanRelativeError(true), 100 * all.MeanRelativeError(false),
      correlation / count, Spearman(all.predicted, all.measured), best,
      batches.size(), 100 * regret / count);
  return absl::OkStatus();
}

absl::Status Run(const Settings& settings) {
  const auto lengths = ReadLengths(settings.lengths_file, settings.scale);
  if (!lengths.ok()) return lengths.status();
  const auto size = static_cast<size_t>(settings.batch_size);
  const auto wanted =
      static_cast<size_t>(settings.calibration_batches + settings.batches);
  if (lengths->size() < wanted * size) {
    return absl::InvalidArgumentError(
        absl::StrCat(settings.lengths_file, " has ", lengths->size(),
                     " lengths of ", wanted * size));
  }
  std::vector<Lengths> calibration;
  std::vector<Lengths> evaluation;
  for (size_t i = 0; i < wanted; ++i) {
    const auto first = lengths->begin() + static_cast<ptrdiff_t>(i * size);
    (i < static_cast<size_t>(settings.calibration_batches) ? calibration
                                                           : evaluation)
        .emplace_back(first, first + settings.batch_size);
  }
  const auto cost = Calibrate(settings, calibration);
  if (!cost.ok()) return cost.status();
  std::printf(
      "fitted on %zu batches, compared on %zu, %d ranks (dp %d, cp "
      "%d)\n\n"
      "seconds_per_flop %.4g\nefficiency_half_tokens %.4g\n"
      "seconds_per_micro_batch %.4g\nseconds_per_collective %.4g\n"
      "seconds_per_byte %.4g\n\n",
      calibration.size(), evaluation.size(), settings.ranks(),
      settings.shape.dp_size, settings.shape.cp_size, cost->seconds_per_flop,
      cost->efficiency_half_tokens, cost->seconds_per_micro_batch,
      cost->seconds_per_collective, cost->seconds_per_byte);
  return Evaluate(settings, *cost, evaluation);
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Compares predicted and measured step time on CPU ranks.",
               "skrull_model_truth");
  app.add_option("--lengths", settings.lengths_file,
                 "File with a length a line")
      ->required();
  const auto add = [&](const char* name, auto* value, int64_t most,
                       const char* help) {
    app.add_option(name, *value, help)
        ->check(CLI::Range(int64_t{1}, most))
        ->capture_default_str();
  };
  add("--scale", &settings.scale, 1 << 20, "Divides the lengths");
  add("--batch-size", &settings.batch_size, 1 << 16, "Sequences a batch");
  add("--batches", &settings.batches, 1 << 16, "Batches compared");
  add("--calibration-batches", &settings.calibration_batches, 1 << 16,
      "Batches before them, to fit the coefficients on");
  add("--repeats", &settings.repeats, 1000, "Runs of each step");
  add("--dp", &settings.shape.dp_size, 64, "Data-parallel ranks");
  add("--cp", &settings.shape.cp_size, 64, "Context-parallel ranks");
  add("--bucket", &settings.shape.bucket_size_tokens, 1 << 24,
      "Tokens a rank holds in one micro-batch");
  ModelConfig& model = settings.trainer.model;
  add("--layers", &model.layer_count, 64, "Layers");
  add("--hidden", &model.hidden_size, 1 << 14, "Width of the residual stream");
  add("--intermediate", &model.intermediate_size, 1 << 16,
      "Width of the gated MLP");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const absl::Status status = Run(settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace skrull::examples

int main(int argc, char** argv) { return skrull::examples::Main(argc, argv); }
