// The same input gives the same plan, whatever thread asks (case 14).
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::MustPlan;

constexpr int kRuns = 1000;
constexpr int kThreads = 64;

struct Question {
  Job job;
  std::vector<int64_t> lengths;
  Policy policy;
  Plan expected;
};

// Case 14 itself, and batches full of ties and of every feature.
std::vector<Question> Questions() {
  std::vector<Question> questions;
  const auto add = [&](const JobSpec& spec, std::vector<int64_t> lengths) {
    for (const Policy policy : AllPolicies()) {
      const Job job = MakeJob(spec);
      if (!CheckBatch(job, lengths, policy).ok()) continue;
      questions.push_back(
          {job, lengths, policy, MustPlan(job, lengths, policy)});
    }
  };
  add(testing::UnitSpec(1, 2, 10), {5, 5, 5, 5});
  add(testing::UnitSpec(3, 4, 10), std::vector<int64_t>(50, 5));
  testing::Random random(14);
  for (int i = 0; i < 10; ++i) {
    const JobSpec spec = testing::RandomSpec(random);
    add(spec, testing::RandomLengths(random, MakeJob(spec), 60));
  }
  return questions;
}

TEST_CASE("Planner: case 14, 1,000 runs in one thread give one plan",
          "[planner][determinism]") {
  for (const Question& q : Questions()) {
    for (int run = 0; run < kRuns; ++run) {
      if (MustPlan(q.job, q.lengths, q.policy) != q.expected) {
        FAIL("run " << run << " differs: " << testing::ToText(q.lengths));
      }
    }
  }
}

TEST_CASE("Planner: case 14, 64 threads give the same plan",
          "[planner][determinism]") {
  const std::vector<Question> questions = Questions();
  std::atomic<int> different = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int run = 0; run < kRuns / kThreads + 1; ++run) {
          for (const Question& q : questions) {
            const absl::StatusOr<Plan> plan =
                MakePlan(q.job, q.lengths, {.key = {}, .policy = q.policy});
            if (!plan.ok() || *plan != q.expected) ++different;
          }
        }
      });
    }
  }
  CHECK(different == 0);
}

}  // namespace
}  // namespace skrull
