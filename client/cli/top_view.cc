#include "skrull/cli/top_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "skrull/cli/figures_text.h"
#include "skrull/cli/io.h"
#include "skrull/cli/table.h"

namespace skrull::cli {
namespace {

using Time = std::chrono::system_clock::time_point;

enum class Style { kPlain, kBold, kHeader, kWarning };

struct Line {
  std::string text;
  Style style = Style::kPlain;
};

// A row of either table: where it comes from.
struct JobRow {
  const DaemonSample* sample;
  const DaemonJob* job;
};
struct PlanRow {
  const DaemonSample* sample;
  const DaemonPlan* plan;
};

// What a daemon sent, harmless on any terminal.
std::string Printable(const std::string& text) {
  return absl::CHexEscape(text);
}

// "3d 04:05:06", "04:05:06".
std::string Uptime(std::chrono::system_clock::duration time) {
  const int64_t seconds = std::max<int64_t>(
      0, std::chrono::duration_cast<std::chrono::seconds>(time).count());
  const std::string clock = absl::StrFormat(
      "%02d:%02d:%02d", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
  return seconds < 86400 ? clock : absl::StrCat(seconds / 86400, "d ", clock);
}

// "12s", "3m", "4h", "5d".
std::string Age(std::chrono::system_clock::duration time) {
  const int64_t seconds = std::max<int64_t>(
      0, std::chrono::duration_cast<std::chrono::seconds>(time).count());
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86400, "d");
}

std::string Rate(const std::optional<double>& rate) {
  return rate ? absl::StrFormat("%.1f", *rate) : "-";
}

std::optional<double> GapOf(const DaemonPlan& plan) {
  if (!(plan.lower_bound_seconds > 0)) return std::nullopt;
  return plan.predicted_seconds / plan.lower_bound_seconds - 1;
}

std::optional<double> ShareOf(int64_t part, int64_t whole) {
  if (whole <= 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

// "POLICY_SKRULL" -> "SKRULL".
std::string PolicyText(const std::string& name) {
  const std::string prefix = "POLICY_";
  return Printable(name.starts_with(prefix) ? name.substr(prefix.size())
                                            : name);
}

std::optional<double> JobRate(const JobRow& row) {
  if (!row.sample->rates) return std::nullopt;
  const auto& rates = row.sample->rates->job_plans;
  const auto found = rates.find(row.job->name);
  if (found == rates.end()) return std::nullopt;
  return found->second;
}

// Tells in three lines what the daemon as a whole does.
void AppendHeader(const DaemonSample& sample, std::vector<Line>* lines) {
  const std::string address = Printable(sample.address);
  if (!sample.status.ok()) {
    const absl::Status& error = sample.status.status();
    lines->push_back(
        {absl::StrCat(address, "  ", absl::StatusCodeToString(error.code()),
                      ": ", Printable(std::string(error.message()))),
         Style::kWarning});
    return;
  }
  const DaemonStatus& status = *sample.status;
  lines->push_back(
      {absl::StrCat("skrulld ", Printable(status.version), " at ", address,
                    "  up ", Uptime(status.now - status.start_time), "  store ",
                    Printable(status.store),
                    status.draining ? "  draining" : ""),
       status.draining ? Style::kWarning : Style::kBold});
  constexpr int64_t kWidth = 20;
  const int64_t threads = std::max<int64_t>(status.planning_thread_count, 0);
  const int64_t busy =
      std::clamp<int64_t>(status.busy_thread_count, 0, threads);
  const auto full =
      static_cast<size_t>(threads == 0 ? 0 : busy * kWidth / threads);
  lines->push_back(
      {absl::StrFormat("threads [%s%s] %d/%d busy  queue %d  waiting ranks %d  "
                       "jobs %s",
                       std::string(full, '#'), std::string(kWidth - full, '-'),
                       status.busy_thread_count, status.planning_thread_count,
                       status.queued_batch_count, status.waiting_rank_count,
                       WithThousands(status.job_count)),
       status.queued_batch_count > 0 ? Style::kWarning : Style::kPlain});
  const auto count = [&](const char* name, int64_t total,
                         double DaemonRates::* rate) {
    std::optional<double> growth;
    if (sample.rates) growth = *sample.rates.*rate;
    return absl::StrCat(name, " ", WithThousands(total), " (", Rate(growth),
                        "/s)");
  };
  lines->push_back(
      {absl::StrCat(
           count("plans", status.plan_count, &DaemonRates::plans), "  ",
           count("refusals", status.refusal_count, &DaemonRates::refusals),
           "  ", count("reports", status.report_count, &DaemonRates::reports),
           "  ",
           count("out of memory", status.out_of_memory_count,
                 &DaemonRates::out_of_memory)),
       sample.rates && sample.rates->out_of_memory > 0 ? Style::kWarning
                                                       : Style::kPlain});
}

// What `sort` compares; higher first. Rows without it come last.
double SortValue(const JobRow& row, TopSort sort) {
  constexpr double kLast = -std::numeric_limits<double>::infinity();
  const auto& plan = row.job->last_plan;
  double value = kLast;
  switch (sort) {
    case TopSort::kRecent:
      if (plan) {
        value = std::chrono::duration<double>(plan->time.time_since_epoch())
                    .count();
      }
      break;
    case TopSort::kName:
      break;
    case TopSort::kPlans:
      value = static_cast<double>(row.job->plan_count);
      break;
    case TopSort::kRate:
      value = JobRate(row).value_or(kLast);
      break;
    case TopSort::kReports:
      value = static_cast<double>(row.job->report_count);
      break;
    case TopSort::kOutOfMemory:
      value = static_cast<double>(row.job->out_of_memory_count);
      break;
    case TopSort::kPredicted:
      if (plan) value = plan->predicted_seconds;
      break;
    case TopSort::kGap:
      if (plan) value = GapOf(*plan).value_or(kLast);
      break;
  }
  // A daemon can send NaN, which has no place in an order.
  return std::isnan(value) ? kLast : value;
}

std::vector<JobRow> SortedJobs(const std::vector<DaemonSample>& samples,
                               TopSort sort) {
  std::vector<JobRow> rows;
  for (const DaemonSample& sample : samples) {
    if (!sample.status.ok()) continue;
    for (const DaemonJob& job : sample.status->jobs) {
      rows.push_back({&sample, &job});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [sort](const JobRow& a, const JobRow& b) {
                     if (sort == TopSort::kName)
                       return a.job->name < b.job->name;
                     return SortValue(a, sort) > SortValue(b, sort);
                   });
  return rows;
}

std::vector<PlanRow> SortedPlans(const std::vector<DaemonSample>& samples) {
  std::vector<PlanRow> rows;
  for (const DaemonSample& sample : samples) {
    if (!sample.status.ok()) continue;
    for (const DaemonPlan& plan : sample.status->plans) {
      rows.push_back({&sample, &plan});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PlanRow& a, const PlanRow& b) {
                     return a.plan->time > b.plan->time;
                   });
  return rows;
}

// A table whose rows end in bars, which are no cells: their width in bytes is
// not that on the screen.
void AppendTable(const std::vector<std::string>& header,
                 const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::string>& bars,
                 std::vector<Line>* lines) {
  std::vector<std::string> text =
      absl::StrSplit(TextTable(header, rows), '\n', absl::SkipEmpty());
  lines->push_back({text[0] + "  LOAD BY RANK", Style::kHeader});
  for (size_t i = 0; i < rows.size(); ++i) {
    lines->push_back({absl::StrCat(text[i + 1], "  ", bars[i])});
  }
}

void AppendJobs(const std::vector<JobRow>& jobs, size_t shown,
                bool many_daemons, bool unicode, std::vector<Line>* lines) {
  std::vector<std::string> header = {"JOB"};
  if (many_daemons) header.push_back("DAEMON");
  for (const char* title :
       {"OWNER", "GEN", "EPOCH", "RANKS", "BUCKET", "PLANS", "PLANS/S",
        "REPORTS", "OOM", "STEP", "PREDICTED", "GAP"}) {
    header.push_back(title);
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> bars;
  for (size_t i = 0; i < shown; ++i) {
    const DaemonJob& job = *jobs[i].job;
    std::vector<std::string> row = {Printable(job.name)};
    if (many_daemons) row.push_back(Printable(jobs[i].sample->address));
    const std::string owner = Printable(job.owner);
    for (const std::string& cell :
         {owner.empty() ? "-" : owner, absl::StrCat(job.generation),
          absl::StrCat(job.calibration_epoch), absl::StrCat(job.rank_count),
          WithThousands(job.bucket_size_tokens), WithThousands(job.plan_count),
          Rate(JobRate(jobs[i])), WithThousands(job.report_count),
          WithThousands(job.out_of_memory_count)}) {
      row.push_back(cell);
    }
    if (job.last_plan) {
      row.push_back(absl::StrCat(job.last_plan->step));
      row.push_back(SecondsText(job.last_plan->predicted_seconds));
      row.push_back(PercentText(GapOf(*job.last_plan)));
      bars.push_back(LoadBar(job.last_plan->rank_load, unicode));
    } else {
      row.insert(row.end(), 3, "-");
      bars.emplace_back();
    }
    rows.push_back(std::move(row));
  }
  AppendTable(header, rows, bars, lines);
}

void AppendPlans(const std::vector<PlanRow>& plans, size_t shown,
                 bool many_daemons, bool unicode, std::vector<Line>* lines) {
  std::vector<std::string> header = {"PLAN OF"};
  if (many_daemons) header.push_back("DAEMON");
  for (const char* title : {"AGE", "STEP", "ATTEMPT", "POLICY", "SEQUENCES",
                            "TOKENS", "SHARDED", "MICRO-BATCHES", "PREDICTED",
                            "GAP", "RANK IMB.", "DP IMB.", "PLANNED IN"}) {
    header.push_back(title);
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> bars;
  for (size_t i = 0; i < shown; ++i) {
    const DaemonPlan& plan = *plans[i].plan;
    const std::string job = Printable(plan.job);
    std::vector<std::string> row = {job.empty() ? "(a spec)" : job};
    if (many_daemons) row.push_back(Printable(plans[i].sample->address));
    for (const std::string& cell :
         {Age(plans[i].sample->status->now - plan.time),
          absl::StrCat(plan.step), absl::StrCat(plan.attempt),
          PolicyText(plan.policy), WithThousands(plan.sequence_count),
          WithThousands(plan.token_count),
          PercentText(ShareOf(plan.sharded_token_count, plan.token_count)),
          absl::StrCat(plan.micro_batch_count),
          SecondsText(plan.predicted_seconds), PercentText(GapOf(plan)),
          PercentText(plan.rank_imbalance), PercentText(plan.dp_imbalance),
          SecondsText(plan.planning_seconds)}) {
      row.push_back(cell);
    }
    rows.push_back(std::move(row));
    bars.push_back(LoadBar(plan.rank_load, unicode));
  }
  AppendTable(header, rows, bars, lines);
}

// The first `columns` characters of UTF-8; all for 0.
std::string Cut(const std::string& text, int columns) {
  if (columns == 0) return text;
  int width = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && ++width > columns) return text.substr(0, at);
  }
  return text;
}

std::string Finish(const Line& line, const TopLayout& layout) {
  const std::string text = Cut(line.text, layout.columns);
  if (!layout.styled || line.style == Style::kPlain) return text;
  const char* const code = line.style == Style::kBold     ? "1"
                           : line.style == Style::kHeader ? "7"
                                                          : "1;31";
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

}  // namespace

const std::vector<std::string>& TopSortNames() {
  static const auto* const names = new std::vector<std::string>{
      "recent", "name", "plans", "rate", "reports", "oom", "predicted", "gap"};
  return *names;
}

TopSort TopSortByName(const std::string& name) {
  const auto& names = TopSortNames();
  return static_cast<TopSort>(std::find(names.begin(), names.end(), name) -
                              names.begin());
}

std::string LoadBar(const std::vector<float>& loads, bool unicode) {
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄",
                                            "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {" ", ".", ":", "-", "=",
                                           "+", "*", "#", "@"};
  constexpr int kLevels = 8;
  std::string bar;
  for (const float load : loads) {
    // Any load shows; NaN does not.
    const int level =
        load > 0 ? static_cast<int>(std::ceil(std::min(load, 1.0f) * kLevels))
                 : 0;
    bar += unicode ? kBlocks[level] : kAscii[level];
  }
  return bar;
}

std::vector<std::string> TopScreen(const std::vector<DaemonSample>& samples,
                                   const TopLayout& layout) {
  std::vector<Line> lines;
  for (const DaemonSample& sample : samples) AppendHeader(sample, &lines);
  const std::vector<JobRow> jobs = SortedJobs(samples, layout.sort);
  const std::vector<PlanRow> plans = SortedPlans(samples);
  size_t shown_jobs = jobs.size();
  size_t shown_plans = plans.size();
  if (layout.rows > 0) {
    // Two headers of tables, the empty lines before them, and the footer.
    const size_t used = lines.size() + 4 + (layout.footer.empty() ? 0 : 1);
    const auto rows = static_cast<size_t>(layout.rows);
    const size_t room = rows > used ? rows - used : 0;
    // Jobs get half, and what plans leave.
    shown_jobs = std::min(
        jobs.size(), std::max(room / 2, room - std::min(room, plans.size())));
    shown_plans = std::min(plans.size(), room - shown_jobs);
  }
  const bool many = samples.size() > 1;
  if (!jobs.empty()) {
    lines.push_back({});
    AppendJobs(jobs, shown_jobs, many, layout.unicode, &lines);
  }
  if (!plans.empty()) {
    lines.push_back({});
    AppendPlans(plans, shown_plans, many, layout.unicode, &lines);
  }
  std::vector<std::string> screen;
  const auto limit = static_cast<size_t>(
      layout.rows == 0 ? std::numeric_limits<int>::max()
                       : layout.rows - (layout.footer.empty() ? 0 : 1));
  for (const Line& line : lines) {
    if (screen.size() >= limit) break;
    screen.push_back(Finish(line, layout));
  }
  if (!layout.footer.empty())
    screen.push_back(Cut(layout.footer, layout.columns));
  return screen;
}

}  // namespace skrull::cli
