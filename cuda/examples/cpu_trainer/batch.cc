#include "skrull/cuda/examples/cpu_trainer/batch.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "skrull/cuda/maps.h"

namespace skrull::examples {

std::vector<int64_t> Batch::lengths() const {
  std::vector<int64_t> lengths;
  for (const auto& sequence : tokens) {
    lengths.push_back(static_cast<int64_t>(sequence.size()));
  }
  return lengths;
}

Batch MakeBatch(const std::vector<int64_t>& lengths, int64_t step,
                int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(step) + 1);
  const auto vocab = static_cast<uint32_t>(vocab_size);
  Batch batch;
  for (const int64_t length : lengths) {
    std::vector<int32_t> tokens;
    auto token = static_cast<uint32_t>(random()) % vocab;
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<int32_t>(token));
      // One of two, so that there is something to learn and something left.
      token = (token * 5 + 3 + static_cast<uint32_t>(random()) % 2) % vocab;
    }
    batch.tokens.push_back(std::move(tokens));
    batch.first_label.push_back(0);
    batch.label_count += length - 1;
  }
  return batch;
}

MicroBatchRows RowsOf(const Batch& batch, const RankMicroBatch& micro_batch) {
  MicroBatchRows rows;
  rows.positions = exec::RowPositions(micro_batch.segments);
  const std::vector<int32_t> sequences =
      exec::RowSequences(micro_batch.segments);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto sequence = static_cast<size_t>(sequences[i]);
    const std::vector<int32_t>& tokens = batch.tokens[sequence];
    const auto position = static_cast<size_t>(rows.positions[i]);
    rows.tokens.push_back(tokens[position]);
    const bool trained = position + 1 < tokens.size() &&
                         rows.positions[i] >= batch.first_label[sequence];
    rows.labels.push_back(trained ? tokens[position + 1] : -1);
  }
  return rows;
}

absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path,
                                                 int64_t scale) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<int64_t> lengths;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    int64_t length = 0;
    if (!absl::SimpleAtoi(line, &length) || length < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": '", line, "' is no length"));
    }
    lengths.push_back(std::max<int64_t>(2, (length + scale - 1) / scale));
  }
  return lengths;
}

}  // namespace skrull::examples
