// The state of one micro-batch against a naive model, step by step.
#include "skrull/planner/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <numeric>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/layout.h"
#include "skrull/planner/tournament_tree.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

// What Placement promises, kept as plain lists.
struct Model {
  const Job* job;
  std::vector<int64_t> lengths;
  std::vector<double> work;
  std::vector<std::deque<int32_t>> local;  // per rank, in order of Assign
  int64_t sharded = 0;

  int32_t ranks() const { return static_cast<int32_t>(local.size()); }
  int64_t local_tokens(int32_t rank) const {
    int64_t sum = 0;
    for (const int32_t s : local[static_cast<size_t>(rank)]) {
      sum += lengths[static_cast<size_t>(s)];
    }
    return sum;
  }
  double local_work(int32_t rank) const {
    double sum = 0;
    for (const int32_t s : local[static_cast<size_t>(rank)]) {
      sum += work[static_cast<size_t>(s)];
    }
    return sum;
  }
  int64_t load(int32_t rank) const {
    return local_tokens(rank) + BlockRows(sharded, ranks(), rank);
  }
  // With `more` sharded and `extra` more tokens on `rank`.
  bool Fits(int64_t more, int32_t rank, int64_t extra) const {
    for (int32_t r = 0; r < ranks(); ++r) {
      const int64_t rows = local_tokens(r) +
                           BlockRows(sharded + more, ranks(), r) +
                           (r == rank ? extra : 0);
      if (!job->FitsRank(rows, sharded + more)) return false;
    }
    return true;
  }
};

void RequireEqual(const Placement& placement, const Model& model) {
  REQUIRE(placement.CheckConsistency() == absl::OkStatus());
  REQUIRE(placement.sharded_tokens() == model.sharded);
  int64_t least_load = INT64_MAX;
  int64_t most_load = -1;
  int64_t most_local = -1;
  for (int32_t r = 0; r < model.ranks(); ++r) {
    REQUIRE(placement.local_tokens(r) == model.local_tokens(r));
    REQUIRE(placement.load(r) == model.load(r));
    least_load = std::min(least_load, model.load(r));
    most_load = std::max(most_load, model.load(r));
    if (!model.local[static_cast<size_t>(r)].empty()) {
      most_local = std::max(most_local, model.load(r));
    }
  }
  REQUIRE(model.load(placement.EmptiestRank()) == least_load);
  REQUIRE(model.load(placement.FullestRank()) == most_load);
  const int32_t fullest = placement.FullestRankWithLocal();
  if (most_local < 0) {
    REQUIRE(fullest == -1);
  } else {
    REQUIRE_FALSE(model.local[static_cast<size_t>(fullest)].empty());
    REQUIRE(model.load(fullest) == most_local);
  }
  const int32_t least = placement.LeastLoadedRank();
  for (int32_t r = 0; r < model.ranks(); ++r) {
    REQUIRE(model.local_work(least) <= model.local_work(r) * (1 + 1e-12));
  }
  REQUIRE(placement.IsLegal() == model.Fits(0, 0, 0));
}

TEST_CASE("Placement: random steps equal a naive model",
          "[planner][placement]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 300; ++run) {
    JobSpec spec = UnitSpec(1, static_cast<int32_t>(random.Between(1, 9)),
                            random.Between(5, 60));
    if (random.Chance(0.4)) {
      spec.memory.bytes_per_token = 1;
      spec.memory.gather_bytes_per_token = random.Pick({0.05, 0.2, 1.0});
    }
    const Job job = MakeJob(spec);
    const CostModel cost(job);
    Model model{.job = &job, .lengths = {}, .work = {}, .local = {}};
    for (int64_t n = random.Between(1, 25); n > 0; --n) {
      model.lengths.push_back(random.Between(1, 20));
    }
    std::sort(model.lengths.begin(), model.lengths.end());
    for (const int64_t s : model.lengths) {
      model.work.push_back(cost.Work(s));
    }
    Placement placement(job, model.lengths, model.work);
    REQUIRE(placement.ranks() == job.pool().cp_size);
    for (int round = 0; round < 2; ++round) {
      placement.Clear();
      model.local.assign(static_cast<size_t>(placement.ranks()), {});
      model.sharded = 0;
      RequireEqual(placement, model);
      int64_t roll_backs = placement.roll_back_count();
      std::vector<int32_t> placed;
      for (int32_t s = 0; s < std::ssize(model.lengths); ++s) {
        const int64_t length = model.lengths[static_cast<size_t>(s)];
        REQUIRE(placement.rank_of(s) == Placement::kAbsent);
        for (int32_t r = 0; r < placement.ranks(); ++r) {
          // FitsLocal and Assign speak of a legal state.
          if (placement.IsLegal()) {
            REQUIRE(placement.FitsLocal(s, r) == model.Fits(0, r, length));
          }
        }
        const bool fits_sharded =
            placement.ranks() > 1 && model.Fits(length, 0, 0);
        REQUIRE(placement.FitsSharded(s) == fits_sharded);
        const auto rank =
            static_cast<int32_t>(random.Between(0, placement.ranks() - 1));
        if (random.Chance(0.7) && placement.IsLegal() &&
            placement.FitsLocal(s, rank)) {
          placement.Assign(s, rank);
          model.local[static_cast<size_t>(rank)].push_back(s);
          REQUIRE(placement.rank_of(s) == rank);
        } else if (fits_sharded) {
          placement.Shard(s);
          model.sharded += length;
          REQUIRE(placement.rank_of(s) == Placement::kSharded);
        } else {
          continue;
        }
        placed.push_back(s);
        RequireEqual(placement, model);
        if (placement.ranks() > 1 && random.Chance(0.3)) {
          const int32_t from = placement.FullestRankWithLocal();
          if (from < 0) continue;
          auto& queue = model.local[static_cast<size_t>(from)];
          const int32_t first = queue.front();
          queue.pop_front();
          model.sharded += model.lengths[static_cast<size_t>(first)];
          placement.RollBack(from);
          REQUIRE(placement.rank_of(first) == Placement::kSharded);
          REQUIRE(placement.roll_back_count() == ++roll_backs);
          RequireEqual(placement, model);
        }
      }
      REQUIRE(std::vector<int32_t>(placement.sequences().begin(),
                                   placement.sequences().end()) == placed);
    }
  }
}

TEST_CASE("Placement: a roll-back frees its rank and charges every rank",
          "[planner][placement]") {
  const Job job = MakeJob(UnitSpec(1, 3, 9));
  const std::vector<int64_t> lengths = {7, 7, 8};
  const std::vector<double> work = {7, 7, 8};
  Placement placement(job, lengths, work);
  placement.Assign(0, 0);
  placement.Assign(1, 1);
  CHECK(placement.EmptiestRank() == 2);
  CHECK(placement.FullestRankWithLocal() == 0);
  placement.RollBack(0);  // 7 over three ranks: 3, 2, 2
  CHECK(placement.load(0) == 3);
  CHECK(placement.load(1) == 9);
  CHECK(placement.load(2) == 2);
  CHECK(placement.roll_back_count() == 1);
  CHECK(placement.IsLegal());
  CHECK(placement.CheckConsistency() == absl::OkStatus());
  CHECK_FALSE(placement.FitsLocal(2, 2));
  CHECK_FALSE(placement.FitsSharded(2));
}

TEST_CASE("Placement: exports a plan's placements", "[planner][placement]") {
  const Job job = MakeJob(UnitSpec(2, 2, 10));
  const std::vector<int64_t> lengths = {4, 12, 7};
  const std::vector<double> work = {4, 12, 7};
  Placement placement(job, lengths, work);
  placement.Assign(2, 1);
  placement.Shard(1);  // 7 + 6 rows on rank 1: allowed, and not legal
  CHECK(placement.FullestRank() == 1);
  CHECK_FALSE(placement.IsLegal());
  CHECK(placement.CheckConsistency() == absl::OkStatus());
  CHECK(placement.Export(2) ==
        std::vector<SequencePlacement>{{2, 7, 3, 1}, {1, 12, 2, 2}});
}

TEST_CASE("Placement: one rank cannot shard", "[planner][placement]") {
  const Job job = MakeJob(UnitSpec(3, 1, 9));
  const std::vector<int64_t> lengths = {4};
  const std::vector<double> work = {4};
  const Placement placement(job, lengths, work);
  CHECK(placement.ranks() == 1);
  CHECK(placement.FitsLocal(0, 0));
  CHECK_FALSE(placement.FitsSharded(0));
}

TEST_CASE("TournamentTree: equals a scan after every update",
          "[planner][placement]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int32_t size = 1; size <= 20; ++size) {
    std::vector<int64_t> keys(static_cast<size_t>(size), 3);
    TournamentTree<int64_t, std::less<>> least(size, 3);
    TournamentTree<int64_t, std::greater<>> greatest(size, 3);
    const auto scan = [&](int32_t begin, int32_t end, auto better) {
      int32_t best = -1;
      for (int32_t i = begin; i < end; ++i) {
        if (best < 0 || better(keys[static_cast<size_t>(i)],
                               keys[static_cast<size_t>(best)])) {
          best = i;
        }
      }
      return best;
    };
    for (int step = 0; step < 100; ++step) {
      const auto at = static_cast<int32_t>(random.Between(0, size - 1));
      const int64_t key = random.Between(0, 5);
      keys[static_cast<size_t>(at)] = key;
      least.Set(at, key);
      greatest.Set(at, key);
      REQUIRE(least.key(at) == key);
      REQUIRE(least.Best() == scan(0, size, std::less<>()));
      REQUIRE(greatest.Best() == scan(0, size, std::greater<>()));
      for (int32_t begin = 0; begin <= size; ++begin) {
        for (int32_t end = begin; end <= size; ++end) {
          REQUIRE(least.Best(begin, end) == scan(begin, end, std::less<>()));
          REQUIRE(greatest.Best(begin, end) ==
                  scan(begin, end, std::greater<>()));
        }
      }
      for (int64_t limit = -1; limit <= 6; ++limit) {
        int32_t first = -1;
        for (int32_t i = size - 1; i >= 0; --i) {
          if (keys[static_cast<size_t>(i)] <= limit) first = i;
        }
        REQUIRE(least.FirstNotWorse(limit) == first);
      }
    }
    least.Reset(1);
    REQUIRE(least.Best() == 0);
    REQUIRE(least.key(size - 1) == 1);
  }
  TournamentTree<int64_t, std::less<>> none(0, 0);
  CHECK(none.Best() == -1);
  CHECK(none.Best(0, 0) == -1);
  CHECK(none.FirstNotWorse(5) == -1);
}

}  // namespace
}  // namespace skrull
