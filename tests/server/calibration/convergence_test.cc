// Jobs with a known true model and a wrong spec: how soon their predictions are
// right, and how often they run out of memory.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "skrull/tests/server/calibration/simulated_job.h"

namespace skrull::testing {
namespace {

// 1/5 .. 5, evenly in the logarithm.
double WrongFactor(std::mt19937_64& random) {
  return std::exp(std::uniform_real_distribution<double>(-1, 1)(random) *
                  std::log(5.0));
}

TEST_CASE(
    "Calibration: predictions converge within 5 % in 50 steps, and only "
    "one step runs out of memory",
    "[calibration]") {
  struct Shape {
    int dp_size;
    int cp_size;
    v1::BlockScope scope;
    v1::OverlapScope overlap;
  };
  const Shape shapes[] = {
      {1, 8, v1::BLOCK_SCOPE_GROUP, v1::OVERLAP_SCOPE_LAYER},
      {2, 4, v1::BLOCK_SCOPE_SUBGROUP, v1::OVERLAP_SCOPE_ATTENTION},
      {4, 2, v1::BLOCK_SCOPE_POOL, v1::OVERLAP_SCOPE_LAYER},
      {4, 1, v1::BLOCK_SCOPE_GROUP, v1::OVERLAP_SCOPE_LAYER},
  };
  std::mt19937_64 random(20261130);
  for (const Shape& shape : shapes) {
    for (const Policy policy :
         {Policy::kOptimized, Policy::kSkrull, Policy::kStaticCp}) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        v1::JobSpec truth = TrueSpec(shape.dp_size, shape.cp_size);
        truth.mutable_parallelism()->set_block_scope(shape.scope);
        truth.mutable_cost()->set_overlap_scope(shape.overlap);
        const Wrong wrong = {.seconds_per_flop = WrongFactor(random),
                             .overhead = WrongFactor(random),
                             .link = WrongFactor(random),
                             .bytes_per_token = WrongFactor(random),
                             .static_bytes = WrongFactor(random)};
        CAPTURE(shape.dp_size, shape.cp_size, PolicyName(policy),
                wrong.seconds_per_flop, wrong.overhead, wrong.link,
                wrong.bytes_per_token, wrong.static_bytes);
        v1::JobSpec spec = WrongSpec(truth, wrong);
        if (spec.memory().static_bytes() > 70'000'000'000) {
          spec.mutable_memory()->set_static_bytes(70'000'000'000);
        }
        SimulatedJob job(spec, truth, random());
        job.set_policy(policy);
        // What the group can hold by the spec and in truth.
        const int64_t held =
            std::min<int64_t>(30000, job.bucket()) * shape.cp_size;
        job.RunSteps(50, 64 * shape.dp_size, held / 2);
        CHECK(job.MeanError(10) < 0.05);
        CHECK(job.out_of_memory_steps().size() <= 1);
      }
    }
  }
}

}  // namespace
}  // namespace skrull::testing
