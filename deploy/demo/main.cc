// Plans real batches through a running daemon and prints a table.
//
// skrull_demo ADDRESS BATCHES {JOB_FILE LIST_FILE BATCH_SIZE}...
//
// plans the first BATCHES global batches of BATCH_SIZE sequences of each list
// for its job. Exit 0: every plan was legal; 1: not; 2: usage.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "skrull/client/planner_client.h"
#include "skrull/deploy/demo/demo.h"

namespace skrull::demo {
namespace {

using Row = std::vector<std::string>;

// Prints rows in columns; also a Markdown table.
void PrintTable(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string fill(widths[i] - rows[r][i].size(), ' ');
      // The first two columns are names, the others figures.
      std::printf("| %s ", i < 2 ? (rows[r][i] + fill).c_str()
                                 : (fill + rows[r][i]).c_str());
    }
    std::printf("|\n");
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) {
      std::printf("|%s%s", std::string(widths[i] + 1, '-').c_str(),
                  i < 2 ? "-" : ":");
    }
    std::printf("|\n");
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Row Header() {
  return {"lengths",       "job",          "static CP",  "packed CP",
          "skrull",        "speed-up",     "optimized",  "sharded",
          "micro-batches", "fullest rank", "planned in", "refused"};
}

Row ToRow(const Workload& workload, const Outcome& outcome) {
  Row row = {workload.list_name, workload.job_name};
  const int64_t batches = outcome.planned_batches;
  const std::string refused = absl::StrFormat(
      "%d of %d", outcome.refused_batches, batches + outcome.refused_batches);
  if (batches == 0) {
    row.resize(Header().size() - 1, "-");
    row.push_back(refused);
    return row;
  }
  const PolicySum& skrull = outcome.skrull;
  const auto per_batch = [&](double sum) {
    return sum / static_cast<double>(batches);
  };
  const auto share = [](int64_t part, int64_t whole) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  };
  row.push_back(absl::StrFormat(
      "%.2f s", per_batch(outcome.static_cp.predicted_seconds)));
  row.push_back(absl::StrFormat(
      "%.2f s", per_batch(outcome.packed_static_cp.predicted_seconds)));
  row.push_back(absl::StrFormat("%.2f s", per_batch(skrull.predicted_seconds)));
  row.push_back(absl::StrFormat(
      "%.2fx", outcome.static_cp.predicted_seconds / skrull.predicted_seconds));
  row.push_back(absl::StrFormat(
      "%.2f s", per_batch(outcome.optimized.predicted_seconds)));
  row.push_back(absl::StrFormat(
      "%.1f%%", share(skrull.sharded_token_count, outcome.token_count)));
  row.push_back(absl::StrFormat(
      "%.1f -> %.1f",
      per_batch(static_cast<double>(outcome.static_cp.micro_batch_count)),
      per_batch(static_cast<double>(skrull.micro_batch_count))));
  row.push_back(absl::StrFormat(
      "%.1f%%", share(skrull.max_rank_tokens, outcome.bucket_size)));
  row.push_back(
      absl::StrFormat("%.2f ms", 1e3 * Median(skrull.planning_seconds)));
  row.push_back(refused);
  return row;
}

absl::StatusOr<Workload> ReadWorkload(const std::string& job_file,
                                      const std::string& list_file,
                                      int64_t batch_size, int64_t batches) {
  absl::StatusOr<std::string> text = ReadText(job_file);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::vector<int64_t>> lengths = ReadLengths(list_file);
  if (!lengths.ok()) return lengths.status();
  return Workload{.job_name = std::filesystem::path(job_file).stem().string(),
                  .job_text = *std::move(text),
                  .list_name = std::filesystem::path(list_file).stem().string(),
                  .lengths = *std::move(lengths),
                  .batch_size = batch_size,
                  .max_batches = batches};
}

int Fail(const std::string& what, const absl::Status& status) {
  std::fprintf(stderr, "skrull_demo: %s: %s\n", what.c_str(),
               status.ToString().c_str());
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  int64_t batches = 0;
  if (arguments.size() < 5 || (arguments.size() - 2) % 3 != 0 ||
      !absl::SimpleAtoi(arguments[1], &batches) || batches < 1) {
    std::fprintf(stderr,
                 "usage: skrull_demo ADDRESS BATCHES "
                 "{JOB_FILE LIST_FILE BATCH_SIZE}...\n");
    return 2;
  }
  absl::StatusOr<std::unique_ptr<PlannerClient>> client =
      PlannerClient::Create({.address = arguments[0]});
  if (!client.ok()) return Fail(arguments[0], client.status());

  std::vector<Row> rows = {Header()};
  std::vector<std::string> refusals;
  int64_t plans = 0;
  for (size_t i = 2; i < arguments.size(); i += 3) {
    int64_t batch_size = 0;
    if (!absl::SimpleAtoi(arguments[i + 2], &batch_size) || batch_size < 1) {
      std::fprintf(stderr, "skrull_demo: not a batch size: %s\n",
                   arguments[i + 2].c_str());
      return 2;
    }
    absl::StatusOr<Workload> workload =
        ReadWorkload(arguments[i], arguments[i + 1], batch_size, batches);
    if (!workload.ok()) return Fail(arguments[i], workload.status());
    absl::StatusOr<Outcome> outcome = Run(**client, *workload);
    if (!outcome.ok()) return Fail(workload->list_name, outcome.status());
    rows.push_back(ToRow(*workload, *outcome));
    plans += 4 * outcome->planned_batches;
    if (!outcome->refusal.empty()) {
      refusals.push_back(workload->list_name + ", " + workload->job_name +
                         ", " + outcome->refusal);
    }
  }
  PrintTable(rows);
  std::printf("\n%lld plans, every one legal by the plan checker.\n",
              static_cast<long long>(plans));
  if (!refusals.empty()) {
    std::printf("Refused, the first of each:\n");
    for (const std::string& refusal : refusals) {
      std::printf("- %s\n", refusal.c_str());
    }
  }
  return 0;
}

}  // namespace
}  // namespace skrull::demo

int main(int argc, char** argv) {
  return skrull::demo::Main({argv + 1, argv + argc});
}
