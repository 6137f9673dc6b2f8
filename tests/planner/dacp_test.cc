// Alg. 1 and 4 with their corrections, and without roll-back, on one CP group.
#include "skrull/planner/dacp.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "skrull/planner/cost_model.h"
#include "skrull/planner/layout.h"
#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using testing::MakeJob;
using testing::UnitSpec;

// A placement with all it refers to, after RunDacp on every sequence.
struct Run {
  Run(const JobSpec& spec, std::vector<int64_t> in_order,
      const DacpOptions& options = {})
      : job(MakeJob(spec)), lengths(std::move(in_order)) {
    const CostModel cost(job);
    for (const int64_t s : lengths) work.push_back(cost.Work(s));
    sequences.resize(lengths.size());
    std::iota(sequences.begin(), sequences.end(), 0);
    placement.emplace(job, lengths, work);
    verdict = RunDacp(sequences, *placement, options);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // A rank or Placement::kSharded of each sequence.
  std::vector<int32_t> Ranks() const {
    std::vector<int32_t> ranks;
    for (const int32_t s : sequences) ranks.push_back(placement->rank_of(s));
    return ranks;
  }
  std::vector<int64_t> Loads() const {
    std::vector<int64_t> loads;
    for (int32_t r = 0; r < placement->ranks(); ++r) {
      loads.push_back(placement->load(r));
    }
    return loads;
  }

  Job job;
  std::vector<int64_t> lengths;
  std::vector<double> work;
  std::vector<int32_t> sequences;
  std::optional<Placement> placement;
  DacpVerdict verdict;
};

constexpr int32_t kSharded = Placement::kSharded;
using Loads = std::vector<int64_t>;

TEST_CASE("Dacp: goes to the least loaded rank, then the emptiest, then shards",
          "[planner][dacp]") {
  // 1 -> 0, 2 -> 1, 3 -> 0 (28 < 64), 8: least loaded is 1 with 8 left.
  const Run a(UnitSpec(1, 2, 10), {1, 2, 3, 8});
  CHECK(a.verdict == DacpVerdict::kPlaced);
  CHECK(a.Ranks() == std::vector<int32_t>{0, 1, 0, 1});
  // 12 fits no rank: it is sharded, 6 rows each.
  const Run b(UnitSpec(1, 2, 10), {1, 2, 12});
  CHECK(b.Ranks() == std::vector<int32_t>{0, 1, kSharded});
  CHECK(b.Loads() == Loads{7, 8});
  CHECK(b.placement->roll_back_count() == 0);
}

TEST_CASE("Dacp: rolls back the shortest local sequence first",
          "[planner][dacp]") {
  // Local on rank 0: 1, 3; on rank 1: 2, 5. 28 takes 14 rows of each, 1 more
  // than rank 1 has. Its 2 sharded as well, the loads are 4 + 15 and 5 + 15.
  const Run run(UnitSpec(1, 2, 20), {1, 2, 3, 5, 28});
  CHECK(run.verdict == DacpVerdict::kPlaced);
  CHECK(run.Ranks() == std::vector<int32_t>{0, kSharded, 0, 1, kSharded});
  CHECK(run.Loads() == Loads{19, 20});
  CHECK(run.placement->roll_back_count() == 1);
}

TEST_CASE("Dacp: roll-backs cascade until every rank fits", "[planner][dacp]") {
  const Run run(UnitSpec(1, 3, 9), {7, 7, 10});
  CHECK(run.verdict == DacpVerdict::kPlaced);
  CHECK(run.Loads() == Loads{8, 8, 8});
  CHECK(run.placement->roll_back_count() == 2);
}

TEST_CASE("Dacp: by Alg. 4 the emptiest rank is next, in the order given",
          "[planner][dacp]") {
  const DacpOptions options{.local_rule = LocalRule::kEmptiest};
  // 8 -> 0; 1 and 5 -> 1, which has more room; 3 -> 1, at 6; 20 fits no rank
  // and takes 10 rows of each. By Alg. 1 in this order the same: see below for
  // where they part.
  const Run a(UnitSpec(1, 2, 20), {8, 1, 5, 3, 20}, options);
  CHECK(a.verdict == DacpVerdict::kPlaced);
  CHECK(a.Ranks() == std::vector<int32_t>{0, 1, 1, 1, kSharded});
  CHECK(a.Loads() == Loads{18, 19});
  // 4 -> 0; 2, 1, 4 -> 1. 8 takes 4 rows of each, 1 more than rank 1 has left.
  // Its first, 2, is rolled back, though 1 is shorter: 4 + 5 and 5 + 5.
  const Run b(UnitSpec(1, 2, 10), {4, 2, 1, 4, 8}, options);
  CHECK(b.verdict == DacpVerdict::kPlaced);
  CHECK(b.Ranks() == std::vector<int32_t>{0, kSharded, 1, 1, kSharded});
  CHECK(b.Loads() == Loads{9, 10});
  CHECK(b.placement->roll_back_count() == 1);
  // Least work is not most room: 3, 3 and 3 have 180 FLOPs of attention less
  // than 9 has.
  const JobSpec three = UnitSpec(1, 2, 20);
  CHECK(Run(three, {9, 3, 3, 4, 1}).Ranks() ==
        std::vector<int32_t>{0, 1, 1, 1, 1});
  CHECK(Run(three, {9, 3, 3, 4, 1}, options).Ranks() ==
        std::vector<int32_t>{0, 1, 1, 1, 0});
}

TEST_CASE("Dacp: without roll-back a full rank overflows", "[planner][dacp]") {
  for (const LocalRule rule : {LocalRule::kLeastWork, LocalRule::kEmptiest}) {
    const DacpOptions options{.local_rule = rule, .roll_back = false};
    const Run over(UnitSpec(1, 2, 10), {1, 19}, options);
    CHECK(over.verdict == DacpVerdict::kOutOfMemory);
    CHECK(over.Ranks() == std::vector<int32_t>{0, kSharded});
    CHECK(over.Loads() == Loads{11, 9});
    // 7 and 7 are local, 10 takes 4, 3, 3 rows; the rest is placed as well.
    const Run more(UnitSpec(1, 3, 9), {7, 7, 10, 12}, options);
    CHECK(more.verdict == DacpVerdict::kOutOfMemory);
    CHECK(more.Ranks() == std::vector<int32_t>{0, 1, kSharded, kSharded});
    CHECK(more.Loads() == Loads{15, 14, 7});
    CHECK(more.placement->roll_back_count() == 0);
    const Run fits(UnitSpec(1, 2, 10), {1, 2, 12}, options);
    CHECK(fits.verdict == DacpVerdict::kPlaced);
    CHECK(fits.Loads() == Loads{7, 8});
    // A single rank has nothing to shard over.
    CHECK(Run(UnitSpec(1, 1, 10), {5, 6}, options).verdict ==
          DacpVerdict::kOutOfMemory);
  }
}

TEST_CASE("Dacp: exact fits are placed, one token more is not",
          "[planner][dacp]") {
  CHECK(Run(UnitSpec(1, 2, 10), {6, 6, 8}).verdict == DacpVerdict::kPlaced);
  CHECK(Run(UnitSpec(1, 2, 10), {6, 6, 9}).verdict ==
        DacpVerdict::kNeedsMoreMicroBatches);
  CHECK(Run(UnitSpec(1, 1, 10), {4, 6}).verdict == DacpVerdict::kPlaced);
  CHECK(Run(UnitSpec(1, 1, 10), {5, 6}).verdict ==
        DacpVerdict::kNeedsMoreMicroBatches);
  CHECK(Run(UnitSpec(1, 8, 16384), std::vector<int64_t>(8, 16384)).verdict ==
        DacpVerdict::kPlaced);
}

TEST_CASE("Dacp: the placement can be used again", "[planner][dacp]") {
  Run run(UnitSpec(1, 2, 10), {6, 6, 9});
  REQUIRE(run.verdict == DacpVerdict::kNeedsMoreMicroBatches);
  CHECK(run.placement->CheckConsistency() == absl::OkStatus());
  const std::vector<int32_t> two = {0, 2};
  CHECK(RunDacp(two, *run.placement) == DacpVerdict::kPlaced);
  CHECK(run.placement->CheckConsistency() == absl::OkStatus());
  CHECK(run.placement->rank_of(1) == Placement::kAbsent);
  CHECK(RunDacp({}, *run.placement) == DacpVerdict::kPlaced);
  CHECK(run.placement->sequences().empty());
}

TEST_CASE("Dacp: without gathered K/V it places exactly what fits together",
          "[planner][dacp]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int tight = 0;
  for (int run = 0; run < 20000; ++run) {
    const auto cp = static_cast<int32_t>(random.Between(1, 6));
    const int64_t bucket = random.Between(1, 12);
    std::vector<int64_t> lengths;
    int64_t left = cp * bucket + random.Between(-1, 1);
    while (left > 0) {
      lengths.push_back(random.Between(1, std::min(left, bucket * cp)));
      left -= lengths.back();
    }
    if (lengths.empty()) continue;
    std::sort(lengths.begin(), lengths.end());
    const int64_t tokens =
        std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    const Run result(UnitSpec(1, cp, bucket), lengths);
    CAPTURE(testing::ToText(lengths), cp, bucket);
    REQUIRE((result.verdict == DacpVerdict::kPlaced) ==
            (tokens <= bucket * cp));
    REQUIRE(result.placement->CheckConsistency() == absl::OkStatus());
    if (result.verdict == DacpVerdict::kPlaced) {
      REQUIRE(result.placement->IsLegal());
      REQUIRE(result.placement->sequences().size() == lengths.size());
      tight += tokens == bucket * cp ? 1 : 0;
    }
  }
  CHECK(tight > 3000);
}

// Alg. 1 or 4 with its corrections, by scans over plain vectors. Memory is
// tokens alone. Ties go to the lower rank.
struct PlainDacp {
  PlainDacp(const Run& run, const DacpOptions& with) : r(run), options(with) {
    local.resize(static_cast<size_t>(r.placement->ranks()));
  }

  int64_t Load(size_t rank, int64_t more_sharded = 0) const {
    int64_t load =
        BlockRows(sharded + more_sharded, static_cast<int32_t>(local.size()),
                  static_cast<int32_t>(rank));
    for (const int32_t s : local[rank]) load += Length(s);
    return load;
  }
  double Work(size_t rank) const {
    double work = 0;
    for (const int32_t s : local[rank]) work += r.work[static_cast<size_t>(s)];
    return work;
  }
  int64_t Length(int32_t s) const { return r.lengths[static_cast<size_t>(s)]; }
  bool Legal(int64_t more_sharded) const {
    for (size_t i = 0; i < local.size(); ++i) {
      if (Load(i, more_sharded) > r.job.bucket_size()) return false;
    }
    return true;
  }

  bool Place(int32_t s) {
    while (true) {
      size_t least = 0;
      size_t emptiest = 0;
      for (size_t i = 1; i < local.size(); ++i) {
        if (Work(i) < Work(least)) least = i;
        if (Load(i) < Load(emptiest)) emptiest = i;
      }
      for (const size_t rank : {least, emptiest}) {
        if (rank == least && options.local_rule == LocalRule::kEmptiest &&
            least != emptiest) {
          continue;
        }
        if (Load(rank) + Length(s) > r.job.bucket_size()) continue;
        local[rank].push_back(s);
        return true;
      }
      if (!options.roll_back || (local.size() > 1 && Legal(Length(s)))) {
        sharded += Length(s);
        return true;
      }
      do {
        int64_t most = -1;
        size_t fullest = 0;
        for (size_t i = 0; i < local.size(); ++i) {
          if (!local[i].empty() && Load(i) > most) {
            most = Load(i);
            fullest = i;
          }
        }
        if (most < 0) return false;
        sharded += Length(local[fullest].front());
        local[fullest].erase(local[fullest].begin());
      } while (!Legal(0));
    }
  }

  const Run& r;
  DacpOptions options;
  std::vector<std::vector<int32_t>> local;
  int64_t sharded = 0;
};

TEST_CASE("Dacp: equals the corrected listings done plainly",
          "[planner][dacp]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int out_of_memory = 0;
  for (int run = 0; run < 20000; ++run) {
    const DacpOptions options{.local_rule = random.Pick({LocalRule::kLeastWork,
                                                         LocalRule::kEmptiest}),
                              .roll_back = random.Chance(0.7)};
    const auto cp = static_cast<int32_t>(random.Between(2, 5));
    const int64_t bucket = random.Between(10, 60);
    std::vector<int64_t> lengths;
    int64_t left = cp * bucket;
    for (int64_t n = random.Between(1, 16); n > 0 && left > 0; --n) {
      // Whole numbers of work, so that its sums are exact in any order.
      lengths.push_back(random.Between(
          1, std::min(left, random.Pick<int64_t>({5, bucket, 2 * bucket}))));
      left -= lengths.back();
    }
    if (options.local_rule == LocalRule::kLeastWork) {
      std::sort(lengths.begin(), lengths.end());
    }
    const Run result(UnitSpec(1, cp, bucket), lengths, options);
    PlainDacp plain(result, options);
    for (const int32_t s : result.sequences) REQUIRE(plain.Place(s));
    REQUIRE(result.verdict == (plain.Legal(0) ? DacpVerdict::kPlaced
                                              : DacpVerdict::kOutOfMemory));
    REQUIRE(result.placement->IsLegal() == plain.Legal(0));
    if (options.roll_back) REQUIRE(result.verdict == DacpVerdict::kPlaced);
    out_of_memory += result.verdict == DacpVerdict::kOutOfMemory ? 1 : 0;
    std::vector<int32_t> ranks(lengths.size(), kSharded);
    for (size_t i = 0; i < plain.local.size(); ++i) {
      for (const int32_t s : plain.local[i]) {
        ranks[static_cast<size_t>(s)] = static_cast<int32_t>(i);
      }
    }
    CAPTURE(testing::ToText(lengths), cp, bucket);
    REQUIRE(result.Ranks() == ranks);
  }
  CHECK(out_of_memory > 1000);
}

TEST_CASE("Dacp: over ascending lengths Alg. 4 is Alg. 1 until a roll-back",
          "[planner][dacp]") {
  // Why POLICY_ROUND_ROBIN takes a batch in its own order.
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int some_sharded = 0;
  for (int run = 0; run < 5000; ++run) {
    const JobSpec spec = UnitSpec(1, static_cast<int32_t>(random.Between(1, 6)),
                                  random.Between(20, 60));
    std::vector<int64_t> lengths;
    for (int64_t n = random.Between(1, 12); n > 0; --n) {
      lengths.push_back(random.Between(1, random.Pick<int64_t>({9, 30, 90})));
    }
    std::sort(lengths.begin(), lengths.end());
    const Run first(spec, lengths);
    if (first.verdict != DacpVerdict::kPlaced ||
        first.placement->roll_back_count() > 0) {
      continue;
    }
    some_sharded += first.placement->sharded_tokens() > 0 ? 1 : 0;
    const Run fourth(spec, lengths, {.local_rule = LocalRule::kEmptiest});
    CAPTURE(testing::ToText(lengths), testing::ToText(spec));
    REQUIRE(first.Ranks() == fourth.Ranks());
  }
  CHECK(some_sharded > 500);
}

TEST_CASE("Dacp: one sequence that fits is placed, with gathered K/V too",
          "[planner][dacp]") {
  for (const double gather : {0.1, 0.5, 1.0, 3.0}) {
    for (int32_t cp = 1; cp <= 5; ++cp) {
      const DacpOptions options{.roll_back = cp % 2 == 0};
      JobSpec spec = UnitSpec(1, cp, 12);
      spec.memory.bytes_per_token = 1;
      spec.memory.gather_bytes_per_token = gather;
      const Job job = MakeJob(spec);
      for (int64_t s = 1; s <= job.longest_sequence(); ++s) {
        const Run run(spec, {s}, options);
        CAPTURE(gather, cp, s);
        REQUIRE(run.verdict == DacpVerdict::kPlaced);
        REQUIRE(run.placement->IsLegal());
      }
    }
  }
}

TEST_CASE("Dacp: with gathered K/V what it places is legal",
          "[planner][dacp]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  int placed = 0;
  for (int run = 0; run < 5000; ++run) {
    JobSpec spec = UnitSpec(1, static_cast<int32_t>(random.Between(1, 6)),
                            random.Between(4, 40));
    spec.memory.bytes_per_token = 1;
    spec.memory.gather_bytes_per_token = random.Pick({0.02, 0.1, 0.5});
    const Job job = MakeJob(spec);
    std::vector<int64_t> lengths;
    for (int64_t n = random.Between(1, 12); n > 0; --n) {
      lengths.push_back(random.Between(1, job.longest_sequence()));
    }
    std::sort(lengths.begin(), lengths.end());
    const Run result(spec, lengths);
    REQUIRE(result.placement->CheckConsistency() == absl::OkStatus());
    if (result.verdict == DacpVerdict::kPlaced) {
      ++placed;
      REQUIRE(result.placement->IsLegal());
    }
  }
  CHECK(placed > 500);
}

}  // namespace
}  // namespace skrull
