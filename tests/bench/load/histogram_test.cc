#include "skrull/tests/bench/load/histogram.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace skrull::load {
namespace {

TEST_CASE("Histogram: quantiles are those of the sorted samples, within 1/128",
          "[bench]") {
  const unsigned seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> micros(2.0 * seed, 2.5);
  std::vector<int64_t> samples;
  Histogram all, half;
  for (int i = 0; i < 10000; ++i) {
    samples.push_back(static_cast<int64_t>(micros(random)));
    (i % 2 == 0 ? all : half).Add(samples.back());
  }
  all.Merge(half);
  std::sort(samples.begin(), samples.end());
  CHECK(all.count() == 10000);
  CHECK(all.max() == samples.back());
  CHECK(all.Quantile(1) == samples.back());
  double sum = 0;
  for (int64_t sample : samples) sum += static_cast<double>(sample);
  CHECK(all.mean() == Approx(sum / 10000));
  for (const double share : {0.0001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    CAPTURE(share);
    const auto rank = static_cast<size_t>(std::ceil(share * 10000 - 1e-6));
    const int64_t exact = samples[rank - 1];
    CHECK(all.Quantile(share) >= exact);
    CHECK(all.Quantile(share) <= exact + exact / 128);
  }
}

TEST_CASE("Histogram: small values are exact, extreme ones are kept",
          "[bench]") {
  Histogram histogram;
  CHECK(histogram.Quantile(0.5) == 0);
  CHECK(histogram.mean() == 0);
  for (int64_t value = 0; value < 256; ++value) histogram.Add(value);
  for (int64_t value = 0; value < 256; ++value) {
    CHECK(histogram.Quantile(static_cast<double>(value + 1) / 256) == value);
  }
  histogram.Add(-5);
  CHECK(histogram.Quantile(0) == 0);
  histogram.Add(INT64_MAX);
  CHECK(histogram.max() == Histogram::kMaxMicros);
  CHECK(histogram.Quantile(1) == Histogram::kMaxMicros);
}

}  // namespace
}  // namespace skrull::load
