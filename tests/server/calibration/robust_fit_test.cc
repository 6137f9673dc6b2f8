// Robust least squares on made-up measurements.
#include "skrull/server/calibration/robust_fit.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace skrull::calibration {
namespace {

constexpr Belief kWide = {
    .belief = {1, 1, 1}, .lower = {0.01, 0.01, 0.01}, .upper = {99, 99, 99}};

std::vector<Measurement> Sample(const Unknowns& truth, int count, double noise,
                                uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> part(0.1, 1);
  std::normal_distribution<double> normal;
  std::vector<Measurement> sample;
  for (int n = 0; n < count; ++n) {
    Measurement m;
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      m.x[i] = part(random);
      m.measured += truth[i] * m.x[i];
    }
    m.measured *= std::exp(noise * normal(random));
    sample.push_back(m);
  }
  return sample;
}

TEST_CASE("RobustFit: finds the truth without noise", "[calibration]") {
  const Unknowns truth = {3, 0.5, 2};
  const RobustResult result = RobustFit(Sample(truth, 32, 0, 1), kWide);
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    CHECK(result.value[i] == Approx(truth[i]).epsilon(0.02));
  }
  CHECK(result.scale == kLeastScale);
}

TEST_CASE(
    "RobustFit: a tenth of outliers, however large or small, moves "
    "nothing far",
    "[calibration]") {
  const Unknowns truth = {3, 0.5, 2};
  const double factor = GENERATE(1e-9, 0.1, 3.0, 1e12);
  CAPTURE(factor);
  std::vector<Measurement> sample = Sample(truth, 30, 0.01, 2);
  for (size_t n = 0; n < 3; ++n) sample[n].measured *= factor;
  const RobustResult result = RobustFit(sample, kWide);
  for (size_t n = 3; n < sample.size(); ++n) {
    CHECK(ErrorSize(sample[n], result.value) < 0.05);
  }
  CHECK(result.scale < 0.03);
}

TEST_CASE("RobustFit: what no measurement tells stays where it was believed",
          "[calibration]") {
  std::vector<Measurement> sample = Sample({3, 1, 1}, 32, 0.01, 3);
  for (Measurement& m : sample) {
    m.measured = 3 * m.x[0];
    m.x[1] = 0;
    m.x[2] = 0;
  }
  Belief belief = kWide;
  belief.belief[1] = 7;
  const RobustResult result = RobustFit(sample, belief);
  CHECK(result.value[0] == Approx(3).epsilon(0.001));
  CHECK(result.value[1] == Approx(7).epsilon(1e-6));
  CHECK(result.value[2] == Approx(1).epsilon(1e-6));
}

TEST_CASE("RobustFit: stays within the bounds, the others fitted anew",
          "[calibration]") {
  Belief belief = kWide;
  belief.lower = {0.5, 0.25, 0};
  belief.upper = {2, 4, 4};
  for (const Unknowns& truth :
       {Unknowns{50, 1, 1}, Unknowns{0.01, 3, 1}, Unknowns{50, 50, 50},
        Unknowns{1e-6, 1e-6, 1e-6}, Unknowns{1, 1e15, 1}}) {
    const RobustResult result = RobustFit(Sample(truth, 32, 0.02, 4), belief);
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      CHECK(result.value[i] >= belief.lower[i]);
      CHECK(result.value[i] <= belief.upper[i]);
    }
  }
  // Pinned at 2, the first leaves its rest to the others.
  const RobustResult pinned = RobustFit(Sample({3, 1, 1}, 32, 0, 5), belief);
  CHECK(pinned.value[0] == 2);
  CHECK(pinned.value[1] > 1);
}

}  // namespace
}  // namespace skrull::calibration
