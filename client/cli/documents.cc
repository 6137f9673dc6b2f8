#include "skrull/cli/documents.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "skrull/cli/io.h"
#include "skrull/cli/lengths_file.h"

namespace skrull::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

absl::Status FileError(const fs::path& path, const std::error_code& error) {
  return absl::UnknownError(absl::StrCat(path.string(), ": ", error.message()));
}

// Paths of the files below `directory` that are not hidden, sorted.
absl::StatusOr<std::vector<std::string>> ListFiles(
    const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  if (error) return FileError(directory, error);
  while (it != fs::recursive_directory_iterator()) {
    const fs::path path = it->path();
    const fs::file_status status = it->symlink_status(error);
    if (error) return FileError(path, error);
    const bool hidden = path.filename().string().front() == '.';
    if (hidden && fs::is_directory(status)) it.disable_recursion_pending();
    if (!hidden && fs::is_regular_file(status)) {
      files.push_back(path.generic_string());
    }
    it.increment(error);
    if (error) return FileError(path, error);
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<int64_t> CheckTokens(int64_t tokens, const std::string& what) {
  if (tokens >= 1 && tokens <= kMaxTokens) return tokens;
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", tokens, " tokens, must be 1 .. ", kMaxTokens));
}

// The member that says how long the document is; end() if there is none.
nlohmann::json::const_iterator FindField(const nlohmann::json& object,
                                         const std::string& field) {
  if (!field.empty()) return object.find(field);
  const auto length = object.find("length");
  return length != object.end() ? length : object.find("text");
}

// Tokens of one document; 0 if it is empty.
absl::StatusOr<int64_t> TokensOfObject(const std::string& line,
                                       const std::string& field,
                                       double bytes_per_token) {
  const nlohmann::json object =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  const auto value = FindField(object, field);
  if (value == object.end()) {
    return absl::InvalidArgumentError(
        field.empty() ? "the object has neither \"length\" nor \"text\"; name "
                        "the key with --field"
                      : absl::StrCat("the object has no \"", field, "\" key"));
  }
  const std::string what = absl::StrCat("\"", value.key(), "\"");
  if (value->is_string()) {
    const size_t bytes = value->get_ref<const std::string&>().size();
    if (bytes == 0) return int64_t{0};
    return CheckTokens(
        TokensOfBytes(static_cast<int64_t>(bytes), bytes_per_token), what);
  }
  if (value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<uint64_t>() <= std::numeric_limits<int64_t>::max())) {
    return CheckTokens(value->get<int64_t>(), what);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is ", value->type_name(), ", neither a string nor an integer"));
}

uint64_t SplitMix64(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

int64_t TokensOfBytes(int64_t bytes, double bytes_per_token) {
  const double tokens =
      std::floor(static_cast<double>(bytes) / bytes_per_token);
  // Far more than any sequence may have, and within the type.
  constexpr double kMany = 1e15;
  return static_cast<int64_t>(std::clamp(tokens, 1.0, kMany));
}

absl::StatusOr<DocumentLengths> LengthsOfDirectory(
    const std::string& directory, double bytes_per_token,
    const ReadProgress& progress) {
  const absl::StatusOr<std::vector<std::string>> files = ListFiles(directory);
  if (!files.ok()) return files.status();
  DocumentLengths documents;
  int64_t count = 0;
  for (const std::string& file : *files) {
    const absl::StatusOr<std::string> text = ReadInput(file);
    if (!text.ok()) return text.status();
    progress(++count);
    if (text->empty() || text->find('\0') != std::string::npos) {
      ++documents.skipped;
      continue;
    }
    const absl::StatusOr<int64_t> tokens = CheckTokens(
        TokensOfBytes(static_cast<int64_t>(text->size()), bytes_per_token),
        file);
    if (!tokens.ok()) return tokens.status();
    documents.lengths.push_back(*tokens);
  }
  return documents;
}

absl::StatusOr<DocumentLengths> LengthsOfJsonLines(
    const std::string& text, const std::string& name, const std::string& field,
    double bytes_per_token, const ReadProgress& progress) {
  DocumentLengths documents;
  absl::Status error;
  ForEachLine(text, [&](int64_t number, const std::string& raw) {
    const std::string line(absl::StripAsciiWhitespace(raw));
    if (line.empty()) return true;
    const absl::StatusOr<int64_t> tokens =
        TokensOfObject(line, field, bytes_per_token);
    if (!tokens.ok()) {
      error = absl::InvalidArgumentError(
          absl::StrCat(name, ", line ", number, ": ",
                       std::string(tokens.status().message())));
      return false;
    }
    if (*tokens == 0) {
      ++documents.skipped;
    } else {
      documents.lengths.push_back(*tokens);
    }
    progress(number);
    return true;
  });
  if (!error.ok()) return error;
  return documents;
}

void Shuffle(uint64_t seed, std::vector<int64_t>* lengths) {
  for (size_t left = lengths->size(); left > 1; --left) {
    std::swap((*lengths)[left - 1], (*lengths)[SplitMix64(&seed) % left]);
  }
}

}  // namespace skrull::cli
