// `skrullctl compare`: policies side by side on the same batches, as data, text
// and rows. Pure.
#ifndef SKRULL_CLIENT_CLI_COMPARISON_H_
#define SKRULL_CLIENT_CLI_COMPARISON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "skrull/cli/replay.h"

namespace skrull::cli {

// The policy that all speed-ups are over.
inline constexpr char kSpeedUpBase[] = "POLICY_STATIC_CP";

struct ComparedPolicy {
  std::string policy;
  ReplayFigures figures;
  SpeedUp speed_up;  // over kSpeedUpBase
};

// One job on one list.
struct Comparison {
  std::string job;                 // path of its spec
  std::string lengths;             // path of the list
  int64_t ranks = 0;               // >= 1
  int64_t bucket_size_tokens = 0;  // >= 1
  int64_t sequence_count = 0;
  int64_t batch_count = 0;
  std::vector<ComparedPolicy> policies;
  // Of kSpeedUpBase when it is not one of `policies`.
  std::vector<Refusals> base_refusals;
};

// Two tables, three for a job of several stages, of at most 100 columns, paths
// and messages of refusals aside, and a list of the refusals.
std::string ComparisonText(const Comparison& comparison);

// What the columns of the tables mean; at most 100 columns.
std::string ComparisonLegend();

// One row a policy, with the keys docs/cli.md lists by way of --help.
std::vector<nlohmann::ordered_json> ComparisonRows(
    const Comparison& comparison);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_COMPARISON_H_
