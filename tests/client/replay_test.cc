// Figures of replays, on outcomes made by hand.
#include "skrull/cli/replay.h"

#include <catch2/catch.hpp>

#include "skrull/cli/comparison.h"
#include "skrull/planner/error.h"

namespace skrull::cli {
namespace {

BatchOutcome Planned(double predicted, double bound, double planning = 0.5) {
  BatchOutcome outcome;
  outcome.figures = PlanFigures{.predicted_seconds = predicted,
                                .lower_bound_seconds = bound,
                                .roll_back_count = 3,
                                .sharded_token_count = 25,
                                .micro_batch_count = 2,
                                .max_rank_tokens = 80};
  outcome.token_count = 100;
  outcome.planning_seconds = planning;
  return outcome;
}

BatchOutcome Refused(const std::string& reason, const std::string& message) {
  BatchOutcome outcome;
  outcome.reason = reason;
  outcome.message = message;
  return outcome;
}

TEST_CASE("Summarize: sums and means over the planned batches only",
          "[cli][replay]") {
  std::vector<BatchOutcome> outcomes = {
      Planned(3, 2, 0.5),
      Refused("SIMULATED_OUT_OF_MEMORY", "first"),
      Planned(5, 4, 0.1),
      Refused("EMPTY_BATCH", "none"),
      Refused("SIMULATED_OUT_OF_MEMORY", "second"),
      Planned(4, 4, 0.3),
      Planned(4, 4, 0.7)};
  outcomes[2].figures->max_rank_tokens = 90;
  outcomes[2].figures->sharded_token_count = 0;
  outcomes[2].figures->micro_batch_count = 4;
  outcomes[5].planning_seconds.reset();
  const ReplayFigures figures = Summarize(outcomes);
  CHECK(figures.batch_count == 7);
  CHECK(figures.planned_count == 4);
  CHECK(figures.refused_count() == 3);
  CHECK(figures.token_count == 400);
  CHECK(figures.predicted_seconds == 16);
  CHECK(figures.mean_predicted_seconds == 4.0);
  CHECK(figures.mean_gap == 0.75 / 4);
  CHECK(figures.worst_gap == 0.5);
  CHECK(figures.max_rank_tokens == 90);
  CHECK(figures.sharded_token_share == 75.0 / 400);
  CHECK(figures.mean_micro_batch_count == 2.5);
  CHECK(figures.roll_back_count == 12);
  CHECK(figures.planning_seconds == Approx(1.3));
  CHECK(*figures.mean_planning_seconds == Approx(1.3 / 3));
  CHECK(figures.p50_planning_seconds == 0.5);
  CHECK(figures.worst_planning_seconds == 0.7);
  REQUIRE(figures.refusals.size() == 2);
  CHECK(figures.refusals[0].reason == "SIMULATED_OUT_OF_MEMORY");
  CHECK(figures.refusals[0].batches == std::vector<int64_t>{1, 4});
  CHECK(RefusalLines(figures.refusals) ==
        "  SIMULATED_OUT_OF_MEMORY: 2 batches (1, 4)\n    first\n"
        "  EMPTY_BATCH: 1 batch (3)\n    none\n");
  CHECK(RefusalCounts(figures.refusals).dump() ==
        R"({"SIMULATED_OUT_OF_MEMORY":2,"EMPTY_BATCH":1})");
}

TEST_CASE("Summarize: without a planned batch nothing has a value",
          "[cli][replay]") {
  const std::vector<BatchOutcome> refused(7, Refused("EMPTY_BATCH", "none"));
  for (const ReplayFigures& figures : {Summarize({}), Summarize(refused)}) {
    CHECK_FALSE(figures.mean_predicted_seconds);
    CHECK_FALSE(figures.mean_gap);
    CHECK_FALSE(figures.worst_gap);
    CHECK_FALSE(figures.max_rank_tokens);
    CHECK_FALSE(figures.sharded_token_share);
    CHECK_FALSE(figures.mean_micro_batch_count);
    CHECK_FALSE(figures.mean_planning_seconds);
  }
  CHECK(RefusalLines(Summarize(refused).refusals) ==
        "  EMPTY_BATCH: 7 batches (0, 1, 2, 3, 4, ...)\n    none\n");
}

TEST_CASE("RefusalLines: of a long message the beginning and the end",
          "[cli][replay]") {
  const auto shown = [](const std::string& message) {
    const std::vector<BatchOutcome> outcomes = {Refused("A", message)};
    return RefusalLines(Summarize(outcomes).refusals);
  };
  const std::string begin(100, 'b');
  const std::string end(120, 'e');
  const std::string prefix = "  A: 1 batch (0)\n    ";
  CHECK(shown(begin + "12345" + end) == prefix + begin + "12345" + end + "\n");
  CHECK(shown(begin + "123456" + end) == prefix + begin + " ... " + end + "\n");
  // No character is cut in two.
  const std::string euro = "\xE2\x82\xAC";
  CHECK(shown(begin.substr(1) + euro + "1234" + euro + end.substr(1)) ==
        prefix + begin.substr(1) + " ... " + end.substr(1) + "\n");
}

TEST_CASE("SpeedUpOver: over the batches both planned; ratio of totals first",
          "[cli][replay]") {
  const std::vector<BatchOutcome> base = {Planned(10, 1), Planned(30, 1),
                                          Refused("A", ""), Planned(99, 1)};
  const std::vector<BatchOutcome> other = {Planned(5, 1), Planned(10, 1),
                                           Planned(7, 1), Refused("A", "")};
  const SpeedUp gained = SpeedUpOver(base, other);
  CHECK(gained.batch_count == 2);
  CHECK(*gained.of_totals == Approx(40.0 / 15));
  CHECK(*gained.mean == Approx(2.5));
  const std::vector<BatchOutcome> refused(4, Refused("A", ""));
  for (const SpeedUp& none :
       {SpeedUpOver(refused, other), SpeedUpOver(base, refused),
        SpeedUpOver({}, {})}) {
    CHECK(none.batch_count == 0);
    CHECK_FALSE(none.of_totals);
    CHECK_FALSE(none.mean);
  }
  // Nothing is divided by zero.
  const std::vector<BatchOutcome> zero = {Planned(0, 0)};
  CHECK_FALSE(SpeedUpOver(zero, zero).of_totals);
  CHECK(Summarize(zero).mean_gap == 0.0);
}

TEST_CASE("OutcomeOf: the reason of an error, else its code", "[cli][replay]") {
  const std::vector<int64_t> lengths = {1, 2};
  const BatchOutcome coded =
      OutcomeOf(lengths, absl::DeadlineExceededError("slow"));
  CHECK_FALSE(coded.figures);
  CHECK(coded.reason == "DEADLINE_EXCEEDED");
  CHECK(coded.message == "slow");
  PlanResult plan;
  plan.figures.predicted_seconds = 7;
  plan.planning_seconds = 2;
  const BatchOutcome planned = OutcomeOf(lengths, plan);
  CHECK(planned.figures->predicted_seconds == 7);
  CHECK(planned.token_count == 3);
  CHECK(planned.planning_seconds == 2.0);
}

TEST_CASE("ComparisonText: tables of at most 100 columns, and who refused what",
          "[cli][compare]") {
  const std::vector<BatchOutcome> base = {Refused("A", "too long"),
                                          Planned(8, 4)};
  const std::vector<BatchOutcome> other = {Planned(3, 2), Planned(5, 4)};
  const std::vector<BatchOutcome> none = {Refused("A", "too long"),
                                          Refused("OOM", "full")};
  Comparison comparison = {.job = "j",
                           .lengths = "l",
                           .ranks = 2,
                           .bucket_size_tokens = 160,
                           .sequence_count = 1234,
                           .batch_count = 2,
                           .policies = {},
                           .base_refusals = Summarize(base).refusals};
  for (const auto& [name, outcomes] :
       {std::pair{"POLICY_OTHER", &other}, {"POLICY_NONE", &none}}) {
    comparison.policies.push_back(
        {name, Summarize(*outcomes), SpeedUpOver(base, *outcomes)});
  }
  CHECK(ComparisonText(comparison) ==
        R"(job j: 2 ranks of 160 tokens
lengths l: 1,234 sequences in 2 batches

policy        planned     step  speed-up  (mean)      gap    worst  sharded
POLICY_OTHER      2/2  4.000 s    1.60 x  1.60 x  37.50 %  50.00 %  25.00 %
POLICY_NONE       0/2        -         -       -        -        -        -

policy        peak load  micro-batches  roll-backs   planning        p50      worst
POLICY_OTHER    50.00 %            2.0           6  500.00 ms  500.00 ms  500.00 ms
POLICY_NONE           -              -           -          -          -          -

refused by POLICY_NONE:
  A: 1 batch (0)
    too long
  OOM: 1 batch (1)
    full
refused by POLICY_STATIC_CP, which speed-ups are over:
  A: 1 batch (0)
    too long

)");
  const auto rows = ComparisonRows(comparison);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["speed_up_batches"] == 1);
  CHECK(rows[1]["speed_up"].is_null());
  CHECK(rows[1]["peak_load"].is_null());
  CHECK(rows[1]["refused_batches"] == 2);
}

}  // namespace
}  // namespace skrull::cli
