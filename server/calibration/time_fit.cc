#include "skrull/server/calibration/time_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "skrull/server/calibration/limits.h"
#include "skrull/server/calibration/robust_fit.h"
#include "skrull/server/calibration/step_parts.h"

namespace skrull::calibration {
namespace {

// The unknowns, each over its number in force (kOverhead: see Units).
enum TimeUnknown : size_t { kCompute = 0, kExchange = 1, kOverhead = 2 };

// Squared, so a quarter of a step's.
constexpr double kPartWeight = 0.5;
// Rounds along new critical paths. Paths seldom change after the first two.
constexpr int kRounds = 5;
// Relative change of all numbers below which a round was the last.
constexpr double kSettled = 1e-3;

struct TimedStep {
  const ReportedStep* step;
  double seconds;  // measured
};

// What one unit of each unknown is.
struct Units {
  double seconds_per_flop;
  double link_scale;
  double seconds_per_micro_batch;

  TimeNumbers Numbers(const Unknowns& u) const {
    return {.seconds_per_flop = u[kCompute] * seconds_per_flop,
            .seconds_per_micro_batch = u[kOverhead] * seconds_per_micro_batch,
            .link_scale = u[kExchange] * link_scale};
  }
};

Units UnitsOf(const Epoch& standing) {
  const CostSpec& cost = standing.job.cost();
  return {.seconds_per_flop = cost.seconds_per_flop,
          .link_scale = standing.link_scale(),
          .seconds_per_micro_batch =
              std::max(cost.seconds_per_micro_batch, kLeastOverheadSeconds)};
}

Belief BeliefOf(const Job& spec_job, const Epoch& standing,
                const Units& units) {
  Belief belief;
  const auto set = [&](size_t i, double in_force, double of_spec, double unit) {
    belief.belief[i] = in_force / unit;
    belief.lower[i] =
        std::max(in_force / kEpochFactor, of_spec / kTotalFactor) / unit;
    belief.upper[i] =
        std::min(in_force * kEpochFactor, of_spec * kTotalFactor) / unit;
    // Numbers in force were rounded.
    belief.lower[i] = std::min(belief.lower[i], belief.belief[i]);
    belief.upper[i] = std::max(belief.upper[i], belief.belief[i]);
  };
  set(kCompute, units.seconds_per_flop, spec_job.cost().seconds_per_flop,
      units.seconds_per_flop);
  set(kExchange, units.link_scale, 1, units.link_scale);
  const double in_force = standing.job.cost().seconds_per_micro_batch;
  const double of_spec = spec_job.cost().seconds_per_micro_batch;
  set(kOverhead, in_force, of_spec, units.seconds_per_micro_batch);
  belief.upper[kOverhead] =
      std::min(kEpochFactor * std::max(in_force, kLeastOverheadSeconds),
               kTotalFactor * std::max(of_spec, kLeastOverheadSeconds)) /
      units.seconds_per_micro_batch;
  return belief;
}

// The medians, over ranks, of measured over predicted attention and exchange,
// as measurements of the unknowns alone.
void AddPartMeasurements(const ReportedStep& step, const StepParts& parts,
                         const Unknowns& numbers,
                         std::vector<Measurement>* out) {
  std::vector<double> attention;
  std::vector<double> exchange;
  for (const v1::StepReport& report : step.reports) {
    const auto r = static_cast<size_t>(report.rank());
    if (report.outcome() != v1::STEP_OUTCOME_OK || r >= parts.ranks.size()) {
      continue;
    }
    const RankParts& rank = parts.ranks[r];
    const double in_attention = SecondsOf(report.attention_time());
    if (in_attention > 0 && rank.attention > 0) {
      attention.push_back(in_attention / rank.attention);
    }
    const double waited = SecondsOf(report.exchange_time());
    if (waited > 0 && rank.exchange > 0) {
      exchange.push_back((waited + rank.hiding) / rank.exchange);
    }
  }
  const auto add = [&](size_t unknown, std::vector<double>* ratios) {
    if (2 * ratios->size() < step.reports.size() || ratios->empty()) return;
    Measurement m = {.measured = numbers[unknown] * Median(std::move(*ratios)),
                     .weight = kPartWeight};
    m.x[unknown] = 1;
    out->push_back(m);
  };
  add(kCompute, &attention);
  add(kExchange, &exchange);
}

// What the steps measured of the unknowns, along the paths that these numbers
// give: those of the steps first, in order.
std::vector<Measurement> Linearize(std::span<const TimedStep> steps,
                                   const Job& job, const Unknowns& numbers,
                                   const Units& units) {
  std::vector<Measurement> measurements;
  std::vector<Measurement> of_parts;
  for (const TimedStep& timed : steps) {
    const StepParts parts = PartsOf(job, timed.step->plan);
    Measurement m = {.measured = timed.seconds};
    m.x[kCompute] = parts.compute / numbers[kCompute];
    m.x[kExchange] = parts.exchange / numbers[kExchange];
    m.x[kOverhead] = parts.micro_batches * units.seconds_per_micro_batch;
    measurements.push_back(m);
    AddPartMeasurements(*timed.step, parts, numbers, &of_parts);
  }
  measurements.insert(measurements.end(), of_parts.begin(), of_parts.end());
  return measurements;
}

// Numbers, the paths they give and how well they predict.
struct Candidate {
  Unknowns numbers = {};
  std::vector<Measurement> measurements = {};
  double loss = std::numeric_limits<double>::infinity();
};

// With the mean size of the errors of steps. False if the numbers make no valid
// job.
bool Evaluate(const v1::JobSpec& spec, const Epoch& standing,
              std::span<const TimedStep> steps, const Units& units,
              Candidate* candidate) {
  const TimeNumbers numbers = units.Numbers(candidate->numbers);
  v1::Calibration record = standing.record;
  record.set_seconds_per_flop(numbers.seconds_per_flop);
  record.set_seconds_per_micro_batch(numbers.seconds_per_micro_batch);
  record.set_link_scale(numbers.link_scale);
  const absl::StatusOr<Epoch> epoch = MakeEpoch(spec, record);
  if (!epoch.ok()) return false;
  candidate->measurements =
      Linearize(steps, epoch->job, candidate->numbers, units);
  candidate->loss = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    candidate->loss +=
        ErrorSize(candidate->measurements[i], candidate->numbers);
  }
  candidate->loss /= static_cast<double>(steps.size());
  return true;
}

bool Settled(const Unknowns& a, const Unknowns& b) {
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    if (std::abs(a[i] - b[i]) > kSettled * std::max(a[i], b[i])) return false;
  }
  return true;
}

// Sets the mean errors over the steps that are no outliers of `best`.
void SetErrors(const Candidate& before, const Candidate& best, size_t steps,
               TimeFit* fit) {
  std::vector<double> sizes;
  for (size_t i = 0; i < steps; ++i) {
    sizes.push_back(ErrorSize(best.measurements[i], best.numbers));
  }
  const double limit = kOutlier * std::max(1.4826 * Median(sizes), kLeastScale);
  double count = 0;
  for (size_t i = 0; i < steps; ++i) {
    if (sizes[i] > limit) continue;
    count += 1;
    fit->error_before +=
        std::abs(RelativeError(before.measurements[i], before.numbers));
    fit->error_after +=
        std::abs(RelativeError(best.measurements[i], best.numbers));
    fit->size_before += ErrorSize(before.measurements[i], before.numbers);
    fit->size_after += sizes[i];
  }
  fit->error_before /= count;
  fit->error_after /= count;
  fit->size_before /= count;
  fit->size_after /= count;
}

}  // namespace

std::optional<TimeFit> FitTimes(const v1::JobSpec& spec, const Job& spec_job,
                                const Epoch& standing,
                                std::span<const ReportedStep> steps) {
  std::vector<TimedStep> timed;
  for (const ReportedStep& step : steps) {
    const auto seconds = MeasuredSeconds(step, spec_job.pool().ranks());
    if (seconds && !step.plan.chunk_plan) timed.push_back({&step, *seconds});
  }
  if (timed.empty()) return std::nullopt;
  const Units units = UnitsOf(standing);
  const Belief belief = BeliefOf(spec_job, standing, units);
  Candidate before = {.numbers = belief.belief};
  if (!Evaluate(spec, standing, timed, units, &before)) return std::nullopt;
  Candidate best = before;
  Candidate current = before;
  for (int round = 0; round < kRounds; ++round) {
    Candidate next = {.numbers = RobustFit(current.measurements, belief).value};
    if (!Evaluate(spec, standing, timed, units, &next)) break;
    const bool settled = Settled(next.numbers, current.numbers);
    if (next.loss < best.loss) best = next;
    if (settled) break;
    current = std::move(next);
  }
  TimeFit fit = {.numbers = units.Numbers(best.numbers)};
  SetErrors(before, best, timed.size(), &fit);
  return fit;
}

}  // namespace skrull::calibration
