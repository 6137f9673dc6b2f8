#include "skrull/cli/table.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string Plain(const ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return Dump(value);
  std::vector<std::string> pairs;
  for (const auto& [key, member] : value.items()) {
    pairs.push_back(absl::StrCat(key, "=", Plain(member)));
  }
  return absl::StrJoin(pairs, ";");
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvRecord(std::vector<std::string> fields) {
  for (std::string& field : fields) field = CsvField(field);
  return absl::StrJoin(fields, ",") + "\r\n";
}

}  // namespace

std::string TextTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (size_t column = 0; column < header.size(); ++column) {
    size_t width = header[column].size();
    for (const auto& row : rows) width = std::max(width, row[column].size());
    widths.push_back(width);
  }
  std::string text;
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      if (column == 0) {
        absl::StrAppend(&line, row[column], padding);
      } else {
        absl::StrAppend(&line, "  ", padding, row[column]);
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  append(header);
  for (const auto& row : rows) append(row);
  return text;
}

std::string CsvHeader(const ordered_json& row) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  return CsvRecord(keys);
}

std::string CsvRow(const ordered_json& row) {
  std::vector<std::string> values;
  for (const auto& [key, value] : row.items()) values.push_back(Plain(value));
  return CsvRecord(values);
}

std::string JsonRow(const ordered_json& row) { return Dump(row) + "\n"; }

}  // namespace skrull::cli
