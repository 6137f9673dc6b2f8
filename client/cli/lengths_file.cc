#include "skrull/cli/lengths_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "skrull/cli/io.h"

namespace skrull::cli {
namespace {

// As much of a bad line as helps to find it.
std::string Quote(const std::string& line) {
  constexpr size_t kMaxQuoted = 40;
  const std::string start = line.substr(0, kMaxQuoted);
  return absl::StrCat("\"", absl::CHexEscape(start),
                      line.size() > kMaxQuoted ? "...\"" : "\"");
}

absl::StatusOr<int64_t> ParseInteger(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, value);
  if (result.ec == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quote(text), " does not fit in 64 bits"));
  }
  if (result.ec != std::errc() || result.ptr != end) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quote(text), " is not an integer"));
  }
  return value;
}

absl::StatusOr<int64_t> ParseObject(const std::string& text) {
  const nlohmann::json object =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quote(text), " is not a JSON object"));
  }
  const auto length = object.find("length");
  if (length == object.end()) {
    return absl::InvalidArgumentError("the object has no \"length\" key");
  }
  if (!length->is_number_integer() ||
      (length->is_number_unsigned() &&
       length->get<uint64_t>() > std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"length\" is ",
        Quote(length->dump(-1, ' ', false,
                           nlohmann::json::error_handler_t::replace)),
        ", not a 64-bit integer"));
  }
  return length->get<int64_t>();
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseLengths(const std::string& text,
                                                  const std::string& name) {
  std::vector<int64_t> lengths;
  absl::Status error;
  ForEachLine(text, [&](int64_t number, const std::string& raw) {
    std::string line(absl::StripAsciiWhitespace(raw));
    const bool is_object = !line.empty() && line.front() == '{';
    if (!is_object) {
      line = std::string(
          absl::StripTrailingAsciiWhitespace(line.substr(0, line.find('#'))));
    }
    if (line.empty()) return true;
    const absl::StatusOr<int64_t> value =
        is_object ? ParseObject(line) : ParseInteger(line);
    if (!value.ok()) {
      error = absl::InvalidArgumentError(
          absl::StrCat(name, ", line ", number, ": ",
                       std::string(value.status().message())));
      return false;
    }
    lengths.push_back(*value);
    return true;
  });
  if (!error.ok()) return error;
  return lengths;
}

absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadInput(path);
  if (!text.ok()) return text.status();
  return ParseLengths(*text, InputName(path));
}

std::vector<std::span<const int64_t>> SplitBatches(
    const std::vector<int64_t>& lengths, int64_t batch_size) {
  const std::span<const int64_t> all(lengths);
  if (batch_size <= 0 || all.empty()) return {all};
  std::vector<std::span<const int64_t>> batches;
  const size_t size = static_cast<size_t>(batch_size);
  for (size_t begin = 0; begin < all.size(); begin += size) {
    batches.push_back(all.subspan(begin, std::min(size, all.size() - begin)));
  }
  return batches;
}

void AddBatchSizeOption(CLI::App* command, int64_t* batch_size) {
  command
      ->add_option("--batch-size", *batch_size,
                   "Sequences in a batch; the last batch may be shorter. "
                   "Default: all lengths are one batch")
      ->type_name("COUNT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

}  // namespace skrull::cli
