#include "skrull/tests/client/cli_rows.h"

#include <regex>
#include <stdexcept>

#include "skrull/tests/client/run_cli.h"

namespace skrull::testing {

using nlohmann::ordered_json;

std::vector<ordered_json> ParseRows(const std::string& text) {
  std::vector<ordered_json> rows;
  for (const std::string& line : Lines(text)) {
    rows.push_back(ordered_json::parse(line));
  }
  return rows;
}

std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  size_t at = 0;
  const auto next = [&] { return at < text.size() ? text[at] : '\0'; };
  while (at < text.size()) {
    std::vector<std::string> record;
    for (bool more = true; more;) {
      std::string field;
      if (next() == '"') {
        for (++at; next() != '"' || text.compare(at, 2, "\"\"") == 0; ++at) {
          if (at >= text.size()) throw std::runtime_error("open quote");
          if (next() == '"') ++at;
          field += next();
        }
        ++at;
      } else {
        while (at < text.size() && next() != ',' && next() != '\r') {
          if (next() == '"' || next() == '\n') {
            throw std::runtime_error("needs quotes: " + field);
          }
          field += text[at++];
        }
      }
      record.push_back(field);
      more = next() == ',';
      if (more) ++at;
    }
    if (text.compare(at, 2, "\r\n") != 0) throw std::runtime_error("no CR LF");
    at += 2;
    records.push_back(record);
  }
  return records;
}

std::string WithoutPlanningTimes(const std::string& json_lines) {
  std::string text;
  for (ordered_json row : ParseRows(json_lines)) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) {
      if (key.ends_with("planning_seconds")) keys.push_back(key);
    }
    for (const std::string& key : keys) row.erase(key);
    text += row.dump() + "\n";
  }
  return text;
}

std::string MaskTimes(const std::string& text) {
  return std::regex_replace(text, std::regex(" +[0-9.]+ [um]s"), " T");
}

}  // namespace skrull::testing
