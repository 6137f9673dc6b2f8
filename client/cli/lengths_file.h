// Lengths files: one integer a line, or JSON Lines objects with a `length` key;
// `#` begins a comment; blank lines are skipped.
#ifndef SKRULL_CLIENT_CLI_LENGTHS_FILE_H_
#define SKRULL_CLIENT_CLI_LENGTHS_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace skrull::cli {

// The integers of `text`, in order, whatever their value: the planner judges
// them. Errors: INVALID_ARGUMENT with `name`, line number and what is wrong for
// a line that holds no 64-bit integer.
absl::StatusOr<std::vector<int64_t>> ParseLengths(const std::string& text,
                                                  const std::string& name);

// The same of a file; `-` is the standard input. Errors: also those of
// ReadInput.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path);

// Cuts `lengths` into batches of `batch_size` (0 = one batch); the last may be
// shorter. No lengths are one empty batch. The result refers to `lengths`.
std::vector<std::span<const int64_t>> SplitBatches(
    const std::vector<int64_t>& lengths, int64_t batch_size);

// Adds --batch-size, the `batch_size` of SplitBatches. `batch_size` must
// outlive the command.
void AddBatchSizeOption(CLI::App* command, int64_t* batch_size);

// The lines of `text` without their ends, numbered from 1: calls
// visit(line_number, line) until it returns false.
template <typename Visit>
void ForEachLine(const std::string& text, const Visit& visit) {
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    if (!visit(number, text.substr(begin, end - begin))) return;
    begin = end + 1;
  }
}

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_LENGTHS_FILE_H_
