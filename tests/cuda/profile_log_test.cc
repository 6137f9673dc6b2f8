// The log of reported micro-batches.
#include <catch2/catch.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/profile/log.h"

namespace skrull::profile {
namespace {

LogRecord Parse(const std::string& line) {
  const exec::Result<LogRecord> record = ParseLine(line);
  INFO(line << ": " << record.status().ToString());
  REQUIRE(record.ok());
  return *record;
}

std::string WhyNot(const std::string& line) {
  const exec::Result<LogRecord> record = ParseLine(line);
  INFO(line);
  REQUIRE_FALSE(record.ok());
  CHECK(record.status().code() == exec::StatusCode::kInvalidArgument);
  return record.status().message();
}

exec::Result<std::vector<LogRecord>> Read(const std::string& text) {
  std::istringstream in(text);
  return ReadLog("steps.jsonl", &in);
}

}  // namespace

TEST_CASE("ParseLine: every key", "[profile]") {
  const LogRecord record = Parse(
      R"({"step":12,"rank":3,"micro_batch":1,"compute_seconds":0.41,)"
      R"("exchange_seconds":2e-2,"peak_bytes":61203283968,"loss":1.5,)"
      R"("segments":[{"tokens":4096},{"tokens":32768,"degree":8,"x":[]}]})");
  CHECK(record.step == 12);
  CHECK(record.rank == 3);
  CHECK(record.micro_batch == 1);
  CHECK(record.measured.compute_seconds == 0.41);
  CHECK(record.measured.exchange_seconds == 0.02);
  CHECK(record.measured.peak_bytes == 61203283968);
  CHECK(record.measured.shares == std::vector<Share>{{4096, 1}, {32768, 8}});
  CHECK(record.measured.label == "step 12 rank 3 micro-batch 1");
}

TEST_CASE("ParseLine: what is not there was not measured", "[profile]") {
  const LogRecord record = Parse(R"({"segments":[]})");
  CHECK(record.measured.shares.empty());
  CHECK_FALSE(record.measured.compute_seconds.has_value());
  CHECK_FALSE(record.measured.exchange_seconds.has_value());
  CHECK_FALSE(record.measured.peak_bytes.has_value());
  CHECK(record.measured.label == "step 0 rank 0 micro-batch 0");
}

TEST_CASE("ToLine: reads back the same", "[profile]") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    LogRecord record;
    record.step = static_cast<int64_t>(random() >> 1);
    record.rank = static_cast<int32_t>(random() >> 33);
    record.micro_batch = static_cast<int32_t>(random() % 100);
    const auto number = [&] { return static_cast<double>(random()) * 1e-20; };
    if (random() % 2) record.measured.compute_seconds = number();
    if (random() % 2) record.measured.exchange_seconds = number();
    if (random() % 2) {
      record.measured.peak_bytes = 1 + static_cast<int64_t>(random() >> 2);
    }
    for (uint64_t n = random() % 5; n > 0; --n) {
      record.measured.shares.push_back(
          {.tokens = 1 + static_cast<int64_t>(random() >> 34),
           .degree = 1 + static_cast<int32_t>(random() % 1024)});
    }
    const LogRecord read = Parse(ToLine(record));
    CHECK(read.step == record.step);
    CHECK(read.rank == record.rank);
    CHECK(read.micro_batch == record.micro_batch);
    CHECK(read.measured.compute_seconds == record.measured.compute_seconds);
    CHECK(read.measured.exchange_seconds == record.measured.exchange_seconds);
    CHECK(read.measured.peak_bytes == record.measured.peak_bytes);
    CHECK(read.measured.shares == record.measured.shares);
  }
}

TEST_CASE("ParseLine: refuses by name", "[profile]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is no JSON: "},
      {"nonsense", "is no JSON: "},
      {R"({"segments":[)", "is no JSON: "},
      {R"({"segments":[]} {"segments":[]})", "is no JSON: "},
      {"\xff\xfe{}", "is no JSON: "},
      {R"({"segments":[],"compute_seconds":1e999})", "is no JSON: "},
      {std::string(100'000, '['), "is no JSON: "},
      {"[]", "is no JSON object"},
      {"17", "is no JSON object"},
      {"null", "is no JSON object"},
      {"{}", "segments is missing"},
      {R"({"segments":{}})", "segments is missing or no list"},
      {R"({"segments":[7]})", "segments[0] is no object with tokens"},
      {R"({"segments":[{"tokens":1},{}]})", "segments[1] is no object"},
      {R"({"segments":[{"tokens":0}]})", "segments[0].tokens is no integer"},
      {R"({"segments":[{"tokens":-4}]})", "segments[0].tokens"},
      {R"({"segments":[{"tokens":2147483648}]})", "segments[0].tokens"},
      {R"({"segments":[{"tokens":1.5}]})", "segments[0].tokens"},
      {R"({"segments":[{"tokens":"9"}]})", "segments[0].tokens"},
      {R"({"segments":[{"tokens":9,"degree":0}]})", "segments[0].degree"},
      {R"({"segments":[{"tokens":9,"degree":1048577}]})", "[1, 1048576]"},
      {R"({"segments":[],"step":-1})", "step is no integer in [0, "},
      {R"({"segments":[],"step":18446744073709551615})", "step"},
      {R"({"segments":[],"step":true})", "step"},
      {R"({"segments":[],"rank":2147483648})", "rank"},
      {R"({"segments":[],"micro_batch":null})", "micro_batch"},
      {R"({"segments":[],"compute_seconds":-1})", "compute_seconds"},
      {R"({"segments":[],"compute_seconds":"1"})", "compute_seconds"},
      {R"({"segments":[],"exchange_seconds":[]})", "exchange_seconds"},
      {R"({"segments":[],"peak_bytes":1.5})", "peak_bytes"},
      {R"({"segments":[],"peak_bytes":-1})", "peak_bytes"},
  };
  for (const auto& [line, why] : cases) {
    CHECK_THAT(WhyNot(line), Catch::Contains(why));
  }
}

TEST_CASE("ReadLog: lines, by number", "[profile]") {
  const std::string good = R"({"segments":[{"tokens":5}]})";
  const auto records = Read(good + "\n\n  \t\r\n" + good);
  REQUIRE(records.ok());
  CHECK(records->size() == 2);
  CHECK_THAT(Read(good + "\n\n{}\n").status().message(),
             Catch::StartsWith("steps.jsonl:3: segments is missing"));
  CHECK_THAT(Read("").status().message(),
             Catch::Contains("steps.jsonl holds no records"));
  CHECK_THAT(Read("\n\n").status().message(),
             Catch::Contains("holds no records"));
  CHECK_THAT(Read(good + "\n" + std::string(kMaxLineBytes + 1, ' ') + good)
                 .status()
                 .message(),
             Catch::StartsWith("steps.jsonl:2: the line has"));
}

TEST_CASE("ParseLine: lines with a byte changed never do harm", "[profile]") {
  const std::string good =
      R"({"step":12,"rank":3,"compute_seconds":0.41,"peak_bytes":6120,)"
      R"("segments":[{"tokens":4096},{"tokens":32768,"degree":8}]})";
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string line = good;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = static_cast<char>(random());
          break;
        case 1:
          line.erase(at, 1 + random() % 4);
          break;
        default:
          line.insert(at, 1, "0-9\"{}[],:.eE"[random() % 13]);
      }
    }
    const exec::Result<LogRecord> record = ParseLine(line);
    if (!record.ok()) {
      ++refused;
      continue;
    }
    for (const Share& share : record->measured.shares) {
      CHECK((share.tokens >= 1 && share.tokens <= 2147483647));
      CHECK((share.degree >= 1 && share.degree <= 1 << 20));
    }
    CHECK(record->measured.compute_seconds.value_or(0) >= 0);
  }
  CHECK(refused > 1000);
  CHECK(refused < 5000);
}

}  // namespace skrull::profile
