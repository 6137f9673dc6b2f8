// Tables as text, JSON Lines and CSV.
#include "skrull/cli/table.h"

#include <catch2/catch.hpp>

#include "skrull/tests/client/cli_rows.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

TEST_CASE("TextTable: first column left, the others right, no space at the end",
          "[cli][table]") {
  CHECK(TextTable({"name", "x", "longer"},
                  {{"a", "12345", ""}, {"abcdef", "1", "2"}}) ==
        "name        x  longer\n"
        "a       12345\n"
        "abcdef      1       2\n");
  CHECK(TextTable({"name", "x"}, {}) == "name  x\n");
}

TEST_CASE("CsvRow: quotes what RFC 4180 says, and reads back", "[cli][table]") {
  const ordered_json row = {{"plain", "a b"},
                            {"comma,key", "a,b"},
                            {"quote", "say \"x\""},
                            {"line", "a\r\nb"},
                            {"empty", ""},
                            {"none", nullptr},
                            {"integer", int64_t{1} << 62},
                            {"number", 0.1},
                            {"tiny", 5e-324},
                            {"flag", true},
                            {"object", {{"A", 1}, {"B", "x,y"}}},
                            {"nothing", ordered_json::object()}};
  CHECK(CsvHeader(row) ==
        "plain,\"comma,key\",quote,line,empty,none,integer,number,tiny,flag,"
        "object,nothing\r\n");
  CHECK(CsvRow(row) ==
        "a b,\"a,b\",\"say \"\"x\"\"\",\"a\r\nb\",,,4611686018427387904,0.1,"
        "5e-324,true,\"A=1;B=x,y\",\r\n");
  const auto records = testing::ParseCsv(CsvHeader(row) + CsvRow(row));
  REQUIRE(records.size() == 2);
  CHECK(records[0].size() == row.size());
  CHECK(records[1] ==
        std::vector<std::string>{"a b", "a,b", "say \"x\"", "a\r\nb", "", "",
                                 "4611686018427387904", "0.1", "5e-324", "true",
                                 "A=1;B=x,y", ""});
}

TEST_CASE("JsonRow: bytes that are not UTF-8 are replaced", "[cli][table]") {
  CHECK(JsonRow({{"path", "a\xff"}, {"x", nullptr}}) ==
        "{\"path\":\"a\xEF\xBF\xBD\",\"x\":null}\n");
}

}  // namespace
}  // namespace skrull::cli
