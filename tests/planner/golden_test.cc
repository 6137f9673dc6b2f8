// Plans in readable form against tests/golden/*.txt. After a change that is
// meant to change plans, run this test with SKRULL_UPDATE_GOLDEN=1 and read the
// difference.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "skrull/planner/planner.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

// The plans of every policy, one after the other.
std::string PlansText(const JobSpec& spec,
                      const std::vector<int64_t>& lengths) {
  const Job job = MakeJob(spec);
  std::string text = "lengths " + testing::ToText(lengths) + "\njob" +
                     testing::ToText(spec) + "\n";
  for (const Policy policy : AllPolicies()) {
    const absl::Status status = CheckBatch(job, lengths, policy);
    text +=
        "\n" + (status.ok()
                    ? testing::ToText(testing::MustPlan(job, lengths, policy))
                    : "policy " + PolicyName(policy) +
                          " refuses: " + std::string(status.message()) + "\n");
  }
  return text;
}

void CompareWithGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(SKRULL_GOLDEN_DIR "/") + name + ".txt";
  if (std::getenv("SKRULL_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    WARN("wrote " << path);
    return;
  }
  std::ifstream file(path);
  REQUIRE(file.good());
  std::ostringstream golden;
  golden << file.rdbuf();
  INFO("see the head of golden_test.cc");
  CHECK(text == golden.str());
}

TEST_CASE("Golden: a group of two ranks that needs a roll-back",
          "[planner][golden]") {
  CompareWithGolden("roll_back",
                    PlansText(UnitSpec(1, 2, 20), {28, 1, 5, 2, 3}));
}

TEST_CASE("Golden: two DP ranks and two micro-batches", "[planner][golden]") {
  JobSpec spec = UnitSpec(2, 4, 16);
  spec.cost.seconds_per_micro_batch = 100;
  spec.cost.intra_node = {20, 0.5, {}};
  CompareWithGolden("two_dp_ranks", PlansText(spec, {3, 60, 9, 9, 1, 16, 30, 7,
                                                     2, 2, 40, 5, 12, 8}));
}

TEST_CASE("Golden: an outlier over the pool", "[planner][golden]") {
  JobSpec spec = UnitSpec(3, 2, 16);
  spec.parallelism.block_scope = BlockScope::kPool;
  spec.parallelism.ranks_per_node = 2;
  spec.parallelism.uniform_micro_batch_count = true;
  spec.cost.overlap_scope = OverlapScope::kAttention;
  spec.cost.seconds_per_micro_batch = 100;
  spec.cost.intra_node = {20, 0.5, {}};
  spec.cost.inter_node = LinkCost{50, 2, {}};
  CompareWithGolden("pool_outlier",
                    PlansText(spec, {4, 90, 50, 1, 17, 6, 6, 31}));
}

TEST_CASE("Golden: the paper's job on a mix with one long sequence",
          "[planner][golden]") {
  CompareWithGolden("paper_mix",
                    PlansText(testing::PaperSpec(),
                              {310,  55,  812,  77880, 1290, 640,  230, 98,
                               3900, 420, 15,   2048,  760,  133,  505, 288,
                               941,  67,  1733, 372,   610,  7020, 181, 29}));
}

}  // namespace
}  // namespace skrull
