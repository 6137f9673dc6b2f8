// Rows as a text table, as JSON Lines and as CSV.
#ifndef SKRULL_CLIENT_CLI_TABLE_H_
#define SKRULL_CLIENT_CLI_TABLE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace skrull::cli {

// Lines of aligned columns, two spaces apart, `header` first: the first column
// to the left, the others to the right. Cells are ASCII. REQUIRES: every row is
// as long as the header.
std::string TextTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows);

// Writes objects that all have the same keys as records of RFC 4180, with a
// header of the keys: null is an empty field; an object is "key=value" joined
// by
// ";"; numbers are written as in JSON, so that they read
// back the same. Lines end in CR LF.
std::string CsvHeader(const nlohmann::ordered_json& row);
std::string CsvRow(const nlohmann::ordered_json& row);

// One line of JSON, ended by a newline. Bytes that are not UTF-8 (a path may
// hold any) are replaced.
std::string JsonRow(const nlohmann::ordered_json& row);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_TABLE_H_
