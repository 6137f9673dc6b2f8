// What skrull-profile measures, with clocks that tests turn: nothing here
// depends on how fast the machine is.
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/cuda/profile/link_measure.h"
#include "skrull/cuda/profile/measure.h"
#include "skrull/cuda/profile/rank_pools.h"
#include "skrull/tests/cuda/fake_nccl.h"
#include "skrull/tests/cuda/profile_fakes.h"

namespace skrull::profile {

using exec::DType;
using exec::Result;
using exec::Status;
using exec::StatusCode;

TEST_CASE("Measure: medians and spreads of a clock that tests turn",
          "[profile]") {
  double now = 0;
  int enqueued = 0;
  int waited = 0;
  // The first two calls, and the one that chooses, take 100 s; then a second
  // more each.
  TimedWork work = {.enqueue =
                        [&] {
                          ++enqueued;
                          now += enqueued <= 3 ? 100 : enqueued - 3;
                          return Status();
                        },
                    .synchronize =
                        [&] {
                          ++waited;
                          return Status();
                        }};
  const Clock clock = [&] { return now; };
  const Result<Timing> timing = Measure(
      work, clock, {.warm_ups = 2, .samples = 5, .least_sample_seconds = 1});
  REQUIRE(timing.ok());
  // 1, 2, 3, 4, 5: quartiles 2 and 4.
  CHECK(timing->seconds == 3);
  CHECK(timing->spread == Approx(2.0 / 3));
  CHECK(timing->calls_per_sample == 1);
  CHECK(enqueued == 2 + 1 + 5);
  CHECK(waited == 1 + 1 + 1 + 5);
}

TEST_CASE("Measure: short calls are repeated, as often as is told or needed",
          "[profile]") {
  double now = 0;
  int enqueued = 0;
  const TimedWork work = {.enqueue =
                              [&] {
                                ++enqueued;
                                now += 0.25;
                                return Status();
                              },
                          .synchronize = [] { return Status(); }};
  const Clock clock = [&] { return now; };
  const auto measure = [&](double least, int64_t calls) {
    enqueued = 0;
    const Result<Timing> timing = Measure(
        work, clock,
        {.warm_ups = 0, .samples = 2, .least_sample_seconds = least}, calls);
    REQUIRE(timing.ok());
    CHECK(timing->seconds == Approx(0.25));
    CHECK(timing->spread == Approx(0).margin(1e-9));
    return timing->calls_per_sample;
  };
  CHECK(measure(2, 0) == 8);
  CHECK(enqueued == 1 + 2 * 8);
  CHECK(measure(2.1, 0) == 9);
  CHECK(measure(0.1, 0) == 1);
  CHECK(measure(1e9, 0) == kMaxCallsPerSample);
  CHECK(measure(2, 3) == 3);
  CHECK(enqueued == 2 * 3);
  // A clock that stands still.
  const Result<Timing> still =
      Measure(work, [] { return 7.0; }, {.warm_ups = 0, .samples = 1});
  REQUIRE(still.ok());
  CHECK(still->seconds == 0);
  CHECK(still->spread == 0);
  CHECK(still->calls_per_sample == kMaxCallsPerSample);
}

TEST_CASE("Measure: the first failure ends it", "[profile]") {
  const Status broken(StatusCode::kDeviceError, "broken");
  int calls = 0;
  for (const int fail_at : {1, 2, 3, 5}) {
    calls = 0;
    const auto fail = [&] { return ++calls == fail_at ? broken : Status(); };
    const auto ok = [] { return Status(); };
    const MeasureOptions options = {.warm_ups = 1, .samples = 9};
    const Clock clock = [] { return 0.0; };
    CHECK(Measure({fail, ok}, clock, options, 1).status() == broken);
    CHECK(calls == fail_at);
    calls = 0;
    CHECK(Measure({ok, fail}, clock, options, 1).status() == broken);
    CHECK(calls == fail_at);
  }
}

TEST_CASE("ComputeCases: within bounds, and they tell coefficients apart",
          "[profile]") {
  for (const auto& [least, most] : {std::pair<int64_t, int64_t>{128, 32768},
                                    {16, 128},
                                    {100, 5000},
                                    {1, 8}}) {
    INFO(least << " to " << most);
    std::set<std::string> labels;
    std::vector<Observation> observations;
    for (const ComputeCase& c : ComputeCases(least, most, std::vector{2, 4})) {
      INFO(c.label);
      CHECK(labels.insert(c.label).second);
      int64_t rows = 0;
      for (const Share& share : c.shares) {
        CHECK((share.tokens >= least && share.tokens <= most));
        CHECK(share.tokens >= share.degree * least * (share.degree > 1));
        rows += share.tokens / share.degree;
      }
      CHECK(rows <= most);
      CHECK(rows >= 1);
      observations.push_back(
          {.x = ComputeTerms(kSmallModel, CostForm::Of(false, 4), c.shares)});
    }
    CHECK(labels.size() >= 6);
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      CHECK(IndependentShare(observations, i) > 1e-6);
    }
  }
}

TEST_CASE("MeasureCompute: sums layers and passes", "[profile]") {
  TestStream stream;
  const auto backend = exec::CreateCpuAttention(1);
  RecordingGemm gemm;
  ComputeOptions options = {.model = kSmallModel, .dtype = DType::kFloat32};
  options.measure = {.warm_ups = 0, .samples = 1, .least_sample_seconds = 1e-9};
  const std::vector<ComputeCase> cases = {
      {.label = "a", .shares = {{6, 1}}},
      {.label = "b", .shares = {{12, 2}}},  // as many rows: not timed again
      {.label = "c", .shares = {{9, 1}}}};
  // Every reading is a second after the last: every piece of work takes one.
  double now = 0;
  const Clock clock = [&] { return now += 1; };
  for (const bool recomputes : {false, true}) {
    gemm.products.clear();
    options.recomputes = recomputes;
    const auto timings = MeasureCompute(stream.device(), backend->get(), &gemm,
                                        options, cases, clock, stream.get());
    REQUIRE(timings.ok());
    REQUIRE(timings->size() == 3);
    for (const ComputeTiming& timing : *timings) {
      // Three layers of linear and attention, and the output layer.
      CHECK(timing.forward_seconds == 3 * 2 + 1);
      CHECK(timing.measured.compute_seconds == 2 * 7 + (recomputes ? 6 : 0));
    }
    CHECK((*timings)[1].rows == 6);
    CHECK((*timings)[1].measured.shares == cases[1].shares);
    CHECK(BackwardForwardRatio(*timings) ==
          Approx(recomputes ? 13.0 / 7 : 1.0));
    // Two numbers of rows; a choosing call and a sample of each pass.
    CHECK(gemm.products.size() == 2 * 2 * (4 + 8 + 1 + 2));
  }
  gemm.failure = Status(StatusCode::kDeviceError, "broken");
  const Status failed = MeasureCompute(stream.device(), backend->get(), &gemm,
                                       options, cases, clock, stream.get())
                            .status();
  CHECK(failed == Status(StatusCode::kDeviceError, "a tokens: broken"));
  options.model.head_dim = 0;
  CHECK(MeasureCompute(stream.device(), backend->get(), &gemm, options, cases,
                       clock, stream.get())
            .status()
            .code() == StatusCode::kInvalidArgument);
}

TEST_CASE("MeasureLinks: every size on every block, on every kind of pool",
          "[profile]") {
  exec::CpuDevice device;
  for (const char* name : {"in_process", "host", "device"}) {
    INFO(name);
    const auto pool =
        CreateRankPool({.name = name, .ranks = 3, .device = &device});
    REQUIRE(pool.ok());
    CHECK((*pool)->size() == 3);
    // The first rank alone reads the time.
    std::mutex mutex;
    double now = 0;
    const Clock clock = [&] {
      const std::lock_guard<std::mutex> lock(mutex);
      return now += 1;
    };
    for (const bool divide : {false, true}) {
      const auto timings =
          MeasureLinks(pool->get(),
                       {.degrees = {2, 3},
                        .bytes = {1, 100, 4096},
                        .dtype = DType::kBFloat16},
                       clock, divide, {.warm_ups = 1, .samples = 2});
      INFO(timings.status().ToString());
      REQUIRE(timings.ok());
      REQUIRE(timings->size() == 6);
      const std::vector<std::pair<int32_t, int64_t>> wanted = {
          {2, 1}, {2, 100}, {2, 4096}, {3, 1}, {3, 100}, {3, 4096}};
      for (size_t i = 0; i < 6; ++i) {
        const LinkTiming& timing = (*timings)[i];
        CHECK(timing.degree == wanted[i].first);
        CHECK(timing.bytes == wanted[i].second);
        CHECK(timing.gather.seconds > 0);
        CHECK(timing.reduce.seconds > 0);
        CHECK(timing.gather.calls_per_sample == 32);
      }
    }
  }
}

TEST_CASE("MeasureLinks: over NCCL, a device for each rank", "[profile]") {
  exec::testing::FakeNccl nccl;
  const auto devices = [] {
    std::vector<std::unique_ptr<exec::Device>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(std::make_unique<exec::CpuDevice>());
    }
    return made;
  };
  {
    const auto pool = CreateNcclRanks(&nccl, devices());
    INFO(pool.status().ToString());
    REQUIRE(pool.ok());
    CHECK((*pool)->device(1) != (*pool)->device(2));
    CHECK(nccl.devices() == std::set<int32_t>{0, 1, 2});
    const auto timings = MeasureLinks(
        pool->get(),
        {.degrees = {2, 3}, .bytes = {8, 64}, .dtype = DType::kFloat32},
        WallClock(), false, {.warm_ups = 0, .samples = 1});
    INFO(timings.status().ToString());
    REQUIRE(timings.ok());
    CHECK(timings->size() == 4);
    CHECK((*pool)->agreement(0) != (*pool)->agreement(1));
  }
  CHECK(nccl.counts().communicators == 0);
  CHECK(nccl.counts().misuses == 0);

  nccl.Break("CommInitRank", exec::NcclResult::kSystemError);
  const Status failed = CreateNcclRanks(&nccl, devices()).status();
  INFO(failed.ToString());
  CHECK(failed.code() == StatusCode::kCommFailed);
}

TEST_CASE("MeasureLinks: refuses by name", "[profile]") {
  exec::CpuDevice device;
  const auto pool =
      CreateRankPool({.name = "in_process", .ranks = 2, .device = &device});
  REQUIRE(pool.ok());
  const auto why = [&](const LinkCases& cases) {
    return MeasureLinks(pool->get(), cases, WallClock(), false, {})
        .status()
        .message();
  };
  CHECK_THAT(why({.degrees = {3}, .bytes = {8}}),
             Catch::Contains("a block of 3 ranks, in a pool of 2"));
  CHECK_THAT(why({.degrees = {1}, .bytes = {8}}),
             Catch::Contains("of 1 ranks"));
  CHECK_THAT(why({.degrees = {2}, .bytes = {0}}),
             Catch::Contains("a collective of 0 bytes"));
  const auto create = [&](const char* name, int32_t ranks) {
    return CreateRankPool({.name = name, .ranks = ranks, .device = &device})
        .status();
  };
  CHECK(create("pigeons", 2).code() == StatusCode::kNotFound);
  CHECK(create("host", 1).code() == StatusCode::kInvalidArgument);
  CHECK_THAT(create("nccl", 2).message(),
             Catch::Contains("nccl does not work in memory of device cpu"));
}

TEST_CASE("FitLinks and LinkTable: by hand", "[profile]") {
  std::vector<LinkTiming> timings;
  for (const int64_t bytes : {1000, 4000, 16000}) {
    for (const int32_t degree : {2, 4}) {
      // Two gathers and a reduction take 3 (1e-5 + bytes 2e-9) together.
      const double mean = 1e-5 + static_cast<double>(bytes) * 2e-9;
      timings.push_back({.degree = degree,
                         .bytes = bytes,
                         .gather = {.seconds = 0.75 * mean},
                         .reduce = {.seconds = 1.5 * mean}});
    }
  }
  LinearFit fit = FitLinks(timings, 3, 1e-6);
  CHECK(fit.verdict == Status());
  CHECK(fit.value[kSecondsPerCollective] == Approx(1e-5).epsilon(1e-6));
  CHECK(fit.value[kSecondsPerByte] == Approx(2e-9).epsilon(1e-6));
  CHECK(fit.residuals[1].label == "1000 bytes over 4 ranks");

  for (LinkTiming& timing : timings) {
    if (timing.bytes == 16000)
      timing.gather.seconds = timing.reduce.seconds = 0;
    if (timing.degree == 4) timing.reduce.seconds += 6e-6;
  }
  const std::vector<LinkPoint> table = LinkTable(timings, 3);
  REQUIRE(table.size() == 3);
  CHECK(table[0].bytes == 1000);
  CHECK(table[0].seconds == Approx(1.2e-5 + 1e-6));
  // No slope below zero beyond the last point.
  CHECK(table[2].seconds == table[1].seconds);

  timings.resize(3);
  CHECK_THAT(FitLinks(timings, 3, 1).verdict.message(),
             Catch::Contains("collectives: 3 points for 2 coefficients"));
}

}  // namespace skrull::profile
