// What `skrullctl top` shows, as text.
#include "skrull/cli/top_view.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skrull::cli {
namespace {

using std::chrono::seconds;
using std::chrono::system_clock;

const system_clock::time_point kNow{seconds(1'800'000'000)};

DaemonPlan MakePlan(const std::string& job, int64_t step, seconds age) {
  return {.job = job,
          .step = step,
          .attempt = 1,
          .policy = "POLICY_SKRULL",
          .time = kNow - age,
          .planning_seconds = 0.0125,
          .sequence_count = 256,
          .token_count = 1'000'000,
          .sharded_token_count = 250'000,
          .micro_batch_count = 12,
          .predicted_seconds = 2.5,
          .lower_bound_seconds = 2,
          .rank_imbalance = 0.5,
          .dp_imbalance = 0.125,
          .rank_load = {0.0f, 0.1f, 0.5f, 1.0f}};
}

DaemonJob MakeJob(const std::string& name, int64_t plans) {
  return {.name = name,
          .owner = "team-a",
          .generation = 2,
          .calibration_epoch = 3,
          .rank_count = 32,
          .bucket_size_tokens = 26'000,
          .plan_count = plans,
          .report_count = 10 * plans,
          .out_of_memory_count = 1};
}

DaemonSample MakeSample() {
  DaemonStatus status = {.version = "0.1.0",
                         .start_time = kNow - seconds(2 * 86400 + 3723),
                         .now = kNow,
                         .store = "sqlite",
                         .job_count = 2,
                         .planning_thread_count = 8,
                         .busy_thread_count = 4,
                         .queued_batch_count = 0,
                         .waiting_rank_count = 7,
                         .plan_count = 12'345,
                         .refusal_count = 6,
                         .report_count = 99,
                         .out_of_memory_count = 1};
  status.jobs = {MakeJob("run7", 5), MakeJob("idle", 0)};
  status.jobs[0].last_plan = MakePlan("run7", 41, seconds(3));
  status.plans = {MakePlan("run7", 41, seconds(3)),
                  MakePlan("run7", 40, seconds(300))};
  return {.address = "127.0.0.1:7419", .status = status, .rates = {}};
}

std::string Text(const std::vector<DaemonSample>& samples,
                 const TopLayout& layout) {
  return absl::StrJoin(TopScreen(samples, layout), "\n") + "\n";
}

// Characters of UTF-8, without ANSI styles.
size_t Width(const std::string& line) {
  size_t width = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\033') {
      at = line.find('m', at);
    } else if ((static_cast<unsigned char>(line[at]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

TEST_CASE("TopScreen: tells what the daemon said", "[cli][top]") {
  CHECK(Text({MakeSample()}, {}) ==
        R"(skrulld 0.1.0 at 127.0.0.1:7419  up 2d 01:02:03  store sqlite
threads [##########----------] 4/8 busy  queue 0  waiting ranks 7  jobs 2
plans 12,345 (-/s)  refusals 6 (-/s)  reports 99 (-/s)  out of memory 1 (-/s)

JOB    OWNER  GEN  EPOCH  RANKS  BUCKET  PLANS  PLANS/S  REPORTS  OOM  STEP  PREDICTED      GAP  LOAD BY RANK
run7  team-a    2      3     32  26,000      5        -       50    1    41    2.500 s  25.00 %   .=@
idle  team-a    2      3     32  26,000      0        -        0    1     -          -        -  

PLAN OF  AGE  STEP  ATTEMPT  POLICY  SEQUENCES     TOKENS  SHARDED  MICRO-BATCHES  PREDICTED      GAP  RANK IMB.  DP IMB.  PLANNED IN  LOAD BY RANK
run7      3s    41        1  SKRULL        256  1,000,000  25.00 %             12    2.500 s  25.00 %    50.00 %  12.50 %    12.50 ms   .=@
run7      5m    40        1  SKRULL        256  1,000,000  25.00 %             12    2.500 s  25.00 %    50.00 %  12.50 %    12.50 ms   .=@
)");
}

TEST_CASE("TopScreen: several daemons, one of them gone", "[cli][top]") {
  DaemonSample second = MakeSample();
  second.address = "127.0.0.1:7519";
  second.status->jobs.resize(1);
  second.status->plans.clear();
  second.status->draining = true;
  const DaemonSample gone = {.address = "127.0.0.1:1",
                             .status = absl::UnavailableError("refused"),
                             .rates = {}};
  const auto lines = TopScreen({MakeSample(), second, gone}, {});
  CHECK_THAT(lines[3], Catch::EndsWith("store sqlite  draining"));
  CHECK(lines[6] == "127.0.0.1:1  UNAVAILABLE: refused");
  CHECK_THAT(lines[8], Catch::StartsWith("JOB           DAEMON"));
  CHECK_THAT(lines[9], Catch::StartsWith("run7  127.0.0.1:7419"));
  CHECK_THAT(lines[10], Catch::StartsWith("run7  127.0.0.1:7519"));
}

TEST_CASE("RatesBetween: growth by the daemon's own clock", "[cli][top]") {
  const DaemonStatus before = *MakeSample().status;
  DaemonStatus after = before;
  after.now += seconds(4);
  after.plan_count += 10;
  after.refusal_count += 2;
  after.jobs[0].plan_count += 8;
  after.jobs[1].generation = 3;  // another job of that name
  const auto rates = RatesBetween(before, after);
  REQUIRE(rates);
  CHECK(rates->plans == 2.5);
  CHECK(rates->refusals == 0.5);
  CHECK(rates->reports == 0);
  CHECK(rates->job_plans == std::map<std::string, double>{{"run7", 2}});

  CHECK_FALSE(RatesBetween(before, before));
  CHECK_FALSE(RatesBetween(after, before));
  after.start_time += seconds(1);  // restarted
  CHECK_FALSE(RatesBetween(before, after));
}

TEST_CASE("TopScreen: sorts jobs", "[cli][top]") {
  DaemonSample sample = MakeSample();
  sample.status->plans.clear();
  sample.status->jobs = {MakeJob("b", 1), MakeJob("a", 3), MakeJob("c", 2)};
  auto& jobs = sample.status->jobs;
  jobs[0].last_plan = MakePlan("b", 1, seconds(9));
  jobs[1].last_plan = MakePlan("a", 1, seconds(5));
  jobs[0].last_plan->predicted_seconds = 100;
  jobs[0].last_plan->lower_bound_seconds = 99;
  jobs[2].out_of_memory_count = 50;
  sample.rates = DaemonRates{.job_plans = {{"c", 7.5}, {"b", 1.5}}};
  const auto order = [&](TopSort sort) {
    std::string names;
    for (const std::string& line : TopScreen({sample}, {.sort = sort})) {
      if (line.size() > 2 && line[1] == ' ') names += line[0];
    }
    return names;
  };
  CHECK(order(TopSort::kRecent) == "abc");
  CHECK(order(TopSort::kName) == "abc");
  CHECK(order(TopSort::kPlans) == "acb");
  CHECK(order(TopSort::kReports) == "acb");
  CHECK(order(TopSort::kRate) == "cba");
  CHECK(order(TopSort::kOutOfMemory) == "cba");
  CHECK(order(TopSort::kPredicted) == "bac");
  CHECK(order(TopSort::kGap) == "abc");
  // NaN has no place in an order.
  jobs[1].last_plan->predicted_seconds =
      std::numeric_limits<double>::quiet_NaN();
  CHECK(order(TopSort::kPredicted) == "bac");
  for (size_t i = 0; i < TopSortNames().size(); ++i) {
    CHECK(static_cast<size_t>(TopSortByName(TopSortNames()[i])) == i);
  }
}

TEST_CASE("TopScreen: what a daemon sent cannot reach the terminal",
          "[cli][top]") {
  const std::string hostile =
      "\033[2J\033]0;x\007\r\n\x9b"
      "31m\xff";
  DaemonSample sample = MakeSample();
  DaemonStatus& status = *sample.status;
  sample.address = hostile;
  status.version = hostile;
  status.store = hostile;
  status.jobs[0].name = hostile;
  status.jobs[0].owner = hostile;
  status.plans[0].job = hostile;
  status.plans[0].policy = hostile;
  status.busy_thread_count = -5;
  status.planning_thread_count = -1;
  status.plans[0].planning_seconds = std::numeric_limits<double>::infinity();
  status.plans[1].rank_load = {std::numeric_limits<float>::quiet_NaN(), -1,
                               std::numeric_limits<float>::infinity()};
  DaemonSample dead = {.address = hostile,
                       .status = absl::UnavailableError(hostile),
                       .rates = {}};
  for (const std::string& line : TopScreen({sample, dead}, {})) {
    for (const char c : line) CHECK((c >= ' ' && c <= '~'));
  }
  const auto json = nlohmann::json::parse(TopJson(sample));
  CHECK(json["status"]["draining"] == false);
  CHECK(nlohmann::json::parse(TopJson(dead))["error"]["code"] == "UNAVAILABLE");
}

TEST_CASE("TopScreen: fits every terminal", "[cli][top]") {
  std::vector<DaemonSample> samples = {MakeSample()};
  for (int i = 0; i < 50; ++i) {
    samples[0].status->jobs.push_back(MakeJob(absl::StrCat("job", i), i));
    samples[0].status->plans.push_back(MakePlan("p", i, seconds(i)));
  }
  for (const int daemons : {1, 3}) {
    while (static_cast<int>(samples.size()) < daemons) {
      samples.push_back(samples[0]);
    }
    for (const int columns : {1, 2, 40, 80, 133, 400}) {
      for (const int rows : {1, 2, 3, 5, 8, 24, 60, 1000}) {
        const auto screen = TopScreen(samples, {.columns = columns,
                                                .rows = rows,
                                                .styled = true,
                                                .unicode = true,
                                                .footer = "q quits"});
        INFO(columns << " x " << rows);
        CHECK(screen.size() <= static_cast<size_t>(rows));
        for (const std::string& line : screen) {
          CHECK(Width(line) <= static_cast<size_t>(columns));
        }
      }
    }
  }
  // Both tables have rows where there is room for both.
  const std::string screen = Text({samples[0]}, {.rows = 24, .footer = "end"});
  CHECK_THAT(screen, Catch::Contains("run7  team-a"));
  CHECK_THAT(screen, Catch::Contains("\np "));
  CHECK_THAT(screen, Catch::EndsWith("\nend\n"));
}

TEST_CASE("LoadBar: one character a rank", "[cli][top]") {
  CHECK(LoadBar({}, false).empty());
  CHECK(LoadBar({0, 0.001f, 0.125f, 0.126f, 0.99f, 1, 7}, false) == " ..:@@@");
  CHECK(LoadBar({0, 0.25f, 1}, true) == " ▂█");
}

}  // namespace
}  // namespace skrull::cli
