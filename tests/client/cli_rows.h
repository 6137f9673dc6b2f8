// Reads the rows that skrullctl's tables print, and takes out the one thing
// that differs from run to run.
#ifndef SKRULL_TESTS_CLIENT_CLI_ROWS_H_
#define SKRULL_TESTS_CLIENT_CLI_ROWS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace skrull::testing {

// A job whose costs are whole seconds: a sequence of S tokens takes
// 24 S + 4 S^2 seconds of one rank, a micro-batch 100 more. Two ranks of 10
// tokens in one CP group.
inline constexpr char kWholeSecondsJob[] = R"(
  model { hidden_size: 1 layer_count: 1 attention_head_count: 1 }
  parallelism { cp_size: 2 }
  memory { bucket_size_tokens: 10 }
  cost {
    seconds_per_flop: 1
    pass_multiplier: 1
    seconds_per_micro_batch: 100
  }
)";

// JSON Lines.
std::vector<nlohmann::ordered_json> ParseRows(const std::string& text);

// CSV after RFC 4180, written from its grammar: records of fields. Throws
// std::runtime_error where the text breaks it.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text);

// JSON Lines without their "...planning_seconds" members.
std::string WithoutPlanningTimes(const std::string& json_lines);

// Text with every time below a second, and the spaces before it, as " T".
std::string MaskTimes(const std::string& text);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_CLIENT_CLI_ROWS_H_
