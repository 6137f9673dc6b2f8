// Least squares, verdicts on them, and the fits of the cost model.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "skrull/cuda/profile/calibrate.h"
#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/cuda/profile/fit.h"
#include "skrull/planner/least_squares.h"

namespace skrull::profile {
namespace {

const ModelShape kModel = {.hidden_size = 96,
                           .layer_count = 3,
                           .attention_head_count = 6,
                           .kv_head_count = 2,
                           .head_dim = 16,
                           .intermediate_size = 200,
                           .vocab_size = 500};
const CostForm kForm = CostForm::Of(false, 4);
constexpr double kAnyError = std::numeric_limits<double>::infinity();

double ErrorOf(const std::vector<Observation>& observations,
               const Unknowns& unknowns) {
  double sum = 0;
  for (const Observation& o : observations) {
    double error = o.y;
    for (size_t i = 0; i < kMaxUnknowns; ++i) error -= unknowns[i] * o.x[i];
    sum += o.weight * error * o.weight * error;
  }
  return sum;
}

// Micro-batches of many mixes that took exactly what these coefficients say.
std::vector<MeasuredMicroBatch> Planted(const Unknowns& coefficients) {
  std::vector<MeasuredMicroBatch> measured;
  for (const ComputeCase& c : ComputeCases(16, 4096, std::vector{2, 4})) {
    const Unknowns terms = ComputeTerms(kModel, kForm, c.shares);
    double seconds = 0;
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      seconds += coefficients[i] * terms[i];
    }
    measured.push_back(
        {.label = c.label, .shares = c.shares, .compute_seconds = seconds});
  }
  return measured;
}

// The same, each a little off.
std::vector<MeasuredMicroBatch> WithNoise(
    std::vector<MeasuredMicroBatch> measured, double sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, sigma);
  for (MeasuredMicroBatch& mb : measured)
    *mb.compute_seconds *= 1 + noise(random);
  return measured;
}

const Unknowns kPlanted = {2e-10, 2e-10 * 150, 2e-3};

Catch::Matchers::StdString::ContainsMatcher Contains(const std::string& text) {
  return Catch::Contains(text);
}

}  // namespace

TEST_CASE("NonNegativeLeastSquares: finds what made the numbers", "[profile]") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<Observation> all;
  for (int i = 0; i < 20; ++i) {
    Observation o{.x = {1e9 * uniform(random), 1e3 * uniform(random), 1},
                  .weight = 0.1 + uniform(random)};
    o.y = 3e-10 * o.x[0] + 2e-5 * o.x[1] + 0.01;
    all.push_back(o);
  }
  const LeastSquares found = NonNegativeLeastSquares(all);
  CHECK(found.value[0] == Approx(3e-10).epsilon(1e-6));
  CHECK(found.value[1] == Approx(2e-5).epsilon(1e-6));
  CHECK(found.value[2] == Approx(0.01).epsilon(1e-6));
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    CHECK(found.standard_error[i] <= 1e-6 * found.value[i]);
  }
}

TEST_CASE("NonNegativeLeastSquares: no other point is better", "[profile]") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<Observation> all;
    for (int i = 0; i < 6; ++i) {
      all.push_back({.x = {normal(random), normal(random), 1},
                     .y = normal(random),
                     .weight = std::abs(normal(random))});
    }
    const Unknowns found = NonNegativeLeastSquares(all).value;
    const double least = ErrorOf(all, found);
    for (const double value : found) CHECK(value >= 0);
    for (int i = 0; i < 200; ++i) {
      auto other = found;
      for (double& value : other) {
        value = std::max(0.0, value + 0.3 * normal(random));
      }
      CHECK(ErrorOf(all, other) >= least - 1e-12);
    }
  }
}

TEST_CASE("NonNegativeLeastSquares: columns that cannot be told apart",
          "[profile]") {
  const std::vector<Observation> all = {{.x = {1, 2, 0}, .y = 3},
                                        {.x = {2, 4, 0}, .y = 6}};
  CHECK(ErrorOf(all, NonNegativeLeastSquares(all).value) < 1e-20);
}

TEST_CASE("NonNegativeLeastSquares: the standard error of a mean",
          "[profile]") {
  // 1, 2, 3, 6: mean 3, variance 14 / 3, of the mean 14 / 12.
  std::vector<Observation> all;
  for (const double y : {1, 2, 3, 6}) all.push_back({.x = {1, 0, 0}, .y = y});
  const LeastSquares found = NonNegativeLeastSquares(all);
  CHECK(found.value[0] == Approx(3));
  CHECK(found.standard_error[0] == Approx(std::sqrt(14.0 / 12)));
  CHECK(found.standard_error[1] == 0);
  // One observation has none to spare.
  CHECK(std::isinf(
      NonNegativeLeastSquares(std::vector{all[0]}).standard_error[0]));
}

TEST_CASE("IndependentShare: by hand", "[profile]") {
  const std::vector<Observation> all = {
      {.x = {1, 1, 0}}, {.x = {0, 1, 3}}, {.x = {0, 0, 4}, .weight = 2}};
  CHECK(IndependentShare(all, 0) == Approx(1));
  CHECK(IndependentShare(all, 1) == Approx(0.5));
  // (0, 3, 8) less its part along (0, 1, 0).
  CHECK(IndependentShare(all, 2) == Approx(64.0 / 73));
  const std::vector<Observation> same = {{.x = {3, 1, 0}}, {.x = {3, 1, 0}}};
  CHECK(IndependentShare(same, 1) < 1e-30);
  CHECK(IndependentShare(same, 2) == 0);
}

TEST_CASE("FitCompute: finds planted coefficients", "[profile]") {
  const LinearFit fit = FitCompute(kModel, kForm, Planted(kPlanted), 1e-6);
  CHECK(fit.verdict == exec::Status());
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    CHECK(fit.value[i] == Approx(kPlanted[i]).epsilon(1e-6));
  }
  Coefficients found;
  SetCompute(fit, &found);
  CHECK(found.seconds_per_flop == Approx(2e-10).epsilon(1e-6));
  CHECK(found.efficiency_half_tokens == Approx(150).epsilon(1e-6));
  CHECK(found.seconds_per_micro_batch == Approx(2e-3).epsilon(1e-6));
}

TEST_CASE("FitCompute: under noise, within what its standard errors say",
          "[profile]") {
  // 95 in 100 estimates lie within two standard errors. Of 600, that is 570
  // with a standard deviation of 5.3, if they were independent; three of a fit
  // are not, so up to 9: 7 of those are 63.
  constexpr uint32_t kSeeds = 200;
  constexpr double kSigma = 0.03;
  const auto planted = Planted(kPlanted);
  int within = 0;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    INFO("seed " << seed);
    const LinearFit fit = FitCompute(
        kModel, kForm, WithNoise(planted, kSigma, seed), kMaxMeanError);
    CHECK(fit.verdict == exec::Status());
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      const double off = std::abs(fit.value[i] - kPlanted[i]);
      within += off <= 2 * fit.standard_error[i];
      // 6 of them: 1 in 10^8 for a normal, 1 in 10^6 with 40 points.
      CHECK(off <= 6 * fit.standard_error[i]);
    }
    // The mean of |normal| is sigma sqrt(2 / pi); a fit follows the noise a
    // little, and 40 points spread by 0.1 of it.
    const double expected = kSigma * std::sqrt(2 / M_PI);
    CHECK(fit.mean_error < 1.5 * expected);
    CHECK(fit.mean_error > 0.5 * expected);
    CHECK(fit.worst_error >= fit.mean_error);
  }
  CHECK(within >= 570 - 63);
}

TEST_CASE("FitCompute: orders micro-batches as what made them does",
          "[profile]") {
  // Of two that differ by more than the noise allows, the fit tells the longer.
  constexpr double kSigma = 0.02;
  const auto planted = Planted(kPlanted);
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const LinearFit fit = FitCompute(
        kModel, kForm, WithNoise(planted, kSigma, seed), kMaxMeanError);
    REQUIRE(fit.verdict.ok());
    int compared = 0;
    for (size_t i = 0; i < planted.size(); ++i) {
      for (size_t j = 0; j < planted.size(); ++j) {
        if (*planted[i].compute_seconds * (1 + 4 * kSigma) >=
            *planted[j].compute_seconds) {
          continue;
        }
        ++compared;
        CHECK(fit.residuals[i].predicted < fit.residuals[j].predicted);
      }
    }
    CHECK(compared > 300);
  }
}

TEST_CASE("FitCompute: coefficients that may be zero are, not negative",
          "[profile]") {
  // Short segments that are faster than long ones would need a negative half.
  auto measured = Planted({2e-10, 0, 0});
  for (MeasuredMicroBatch& mb : measured) {
    if (mb.shares[0].tokens < 100) *mb.compute_seconds *= 0.9;
  }
  const LinearFit fit = FitCompute(kModel, kForm, measured, kMaxMeanError);
  CHECK(fit.verdict.ok());
  CHECK(fit.value[kShortLoss] == 0);
  CHECK(fit.value[kSecondsPerMicroBatch] >= 0);
}

TEST_CASE("FitCompute: refuses what says nothing, by name", "[profile]") {
  const auto planted = Planted(kPlanted);
  const auto why = [](const std::vector<MeasuredMicroBatch>& measured,
                      double max_mean_error = kMaxMeanError) {
    const LinearFit fit = FitCompute(kModel, kForm, measured, max_mean_error);
    CHECK(fit.verdict.code() == exec::StatusCode::kInvalidArgument);
    CHECK_THAT(fit.verdict.message(), Catch::StartsWith("computing: "));
    return fit.verdict.message();
  };
  SECTION("no points, and too few") {
    CHECK_THAT(why({}), Contains("0 points for 3 coefficients"));
    CHECK_THAT(why({planted.begin(), planted.begin() + 5}),
               Contains("5 points for 3 coefficients, where 6 are needed"));
  }
  SECTION("micro-batches that are empty or not measured do not count") {
    auto measured = planted;
    for (size_t i = 5; i < measured.size(); ++i) {
      if (i % 2 == 0) {
        measured[i].compute_seconds.reset();
      } else {
        measured[i].shares.clear();
      }
    }
    CHECK_THAT(why(measured), Contains("5 points"));
  }
  SECTION("all of one length") {
    std::vector<MeasuredMicroBatch> measured;
    for (int count = 1; count <= 10; ++count) {
      measured.push_back(
          {.label = "x",
           .shares = std::vector<Share>(static_cast<size_t>(count), {512, 1}),
           .compute_seconds = 0.001 * count + 0.0001});
    }
    CHECK_THAT(why(measured),
               Contains("efficiency_half_tokens cannot be told from "
                        "seconds_per_flop"));
  }
  SECTION("times that fall with the work") {
    auto measured = planted;
    for (MeasuredMicroBatch& mb : measured) {
      mb.compute_seconds = 1e-3 / *mb.compute_seconds;
    }
    CHECK_THAT(why(measured, kAnyError),
               Contains("seconds_per_flop would not be positive") ||
                   Contains("seconds_per_flop is not told from zero"));
  }
  SECTION("noise alone") {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(0.5, 1.5);
    auto measured = planted;
    for (MeasuredMicroBatch& mb : measured)
      mb.compute_seconds = uniform(random);
    CHECK_THAT(why(measured, kAnyError), Contains("seconds_per_flop"));
  }
  SECTION("a bad residual, naming the worst point") {
    auto measured = planted;
    measured[7].label = "the odd one";
    *measured[7].compute_seconds *= 3;
    CHECK_THAT(why(measured, 0.01), Contains("the mean error is") &&
                                        Contains("above 1.0 %") &&
                                        Contains("worst is the odd one"));
  }
  SECTION("numbers that are none") {
    auto measured = planted;
    measured[2].label = "the third";
    measured[2].compute_seconds = std::numeric_limits<double>::infinity();
    CHECK_THAT(why(measured), Contains("the third measured inf"));
  }
}

TEST_CASE("FitExchange: finds planted coefficients", "[profile]") {
  std::vector<MeasuredMicroBatch> measured;
  for (const std::vector<Share>& shares : {std::vector<Share>{{1000, 2}},
                                           {{5000, 4}},
                                           {{800, 2}, {9000, 4}},
                                           {{300, 2}, {400, 2}, {100, 1}},
                                           {{50, 4}},
                                           {{50, 1}}}) {
    // 9 collectives a block; 2 * 32 elements of 4 bytes a token.
    double blocks = 0;
    double tokens = 0;
    for (const int32_t degree : {2, 4}) {
      double on_block = 0;
      for (const Share& share : shares) {
        if (share.degree == degree)
          on_block += static_cast<double>(share.tokens);
      }
      blocks += on_block > 0;
      tokens += on_block;
    }
    measured.push_back(
        {.label = "x",
         .shares = shares,
         .exchange_seconds = 9 * (blocks * 3e-5 + tokens * 256 * 2e-10)});
  }
  CHECK(HasExchange(measured));
  const LinearFit fit = FitExchange(kModel, kForm, measured, 1e-6);
  CHECK(fit.verdict == exec::Status());
  CHECK(fit.residuals.size() == 5);
  CHECK(fit.value[kSecondsPerCollective] == Approx(3e-5).epsilon(1e-6));
  CHECK(fit.value[kSecondsPerByte] == Approx(2e-10).epsilon(1e-6));

  for (MeasuredMicroBatch& mb : measured) mb.exchange_seconds = 0;
  CHECK_FALSE(HasExchange(measured));
  CHECK_THAT(FitExchange(kModel, kForm, measured, 1).verdict.message(),
             Contains("exchange: 0 points for 2 coefficients"));
}

TEST_CASE("FitMemory: finds planted bytes, and what to keep free",
          "[profile]") {
  std::vector<MeasuredMicroBatch> measured;
  for (const std::vector<Share>& shares : {std::vector<Share>{{1000, 1}},
                                           {{4000, 1}, {96, 1}},
                                           {{8000, 4}},
                                           {{2000, 2}, {500, 1}},
                                           {{64, 1}},
                                           {{16000, 8}},
                                           {{300, 1}}}) {
    double rows = 0;
    double gathered = 0;
    for (const Share& share : shares) {
      const auto tokens = static_cast<double>(share.tokens);
      rows += tokens / share.degree;
      gathered += share.degree > 1 ? tokens : 0;
    }
    measured.push_back({.label = "x",
                        .shares = shares,
                        .peak_bytes = static_cast<int64_t>(
                            1e9 + 200'000 * rows + 4096 * gathered)});
  }
  CHECK(HasMemory(measured));
  LinearFit fit = FitMemory(measured, 1e-6);
  CHECK(fit.verdict == exec::Status());
  CHECK(fit.value[kBytesPerToken] == Approx(200'000).epsilon(1e-6));
  CHECK(fit.value[kStaticBytes] == Approx(1e9).epsilon(1e-6));
  CHECK(fit.value[kGatherBytesPerToken] == Approx(4096).epsilon(1e-6));
  CHECK(MemoryReserve(fit) < 1e-6);

  // One used more than the others say: so much of any peak is to be kept free.
  *measured[1].peak_bytes += 300'000'000;
  fit = FitMemory(measured, 1);
  const double reserve = MemoryReserve(fit);
  CHECK(reserve > 0.01);
  bool tight = false;
  for (const FitResidual& r : fit.residuals) {
    CHECK(r.measured * (1 - reserve) <= r.predicted * (1 + 1e-12));
    tight = tight || r.measured * (1 - reserve) >= r.predicted * (1 - 1e-12);
  }
  CHECK(tight);

  // Without sharded sequences there is nothing to say of what is gathered.
  std::erase_if(measured, [](const MeasuredMicroBatch& mb) {
    return mb.shares[0].degree > 1;
  });
  fit = FitMemory(measured, 1);
  CHECK(fit.verdict == exec::Status());
  CHECK(fit.unknowns.size() == 2);
}

}  // namespace skrull::profile
