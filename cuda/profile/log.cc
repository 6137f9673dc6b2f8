#include "skrull/cuda/profile/log.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace skrull::profile {
namespace {

using exec::InvalidArgument;
using exec::Result;
using exec::Status;
using nlohmann::json;

constexpr int64_t kInt32Most = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Most = std::numeric_limits<int64_t>::max();
// Of a pool, as the planner's.
constexpr int64_t kMaxDegree = 1 << 20;

Result<int64_t> IntegerOf(const json& value, const std::string& key,
                          int64_t least, int64_t most) {
  // Integers above int64's range are kept as unsigned ones.
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<uint64_t>() > static_cast<uint64_t>(most));
  if (fits) {
    const auto number = value.get<int64_t>();
    if (number >= least && number <= most) return number;
  }
  return InvalidArgument(key + " is no integer in [" + std::to_string(least) +
                         ", " + std::to_string(most) + "]");
}

// The integer under `key`, or `otherwise` if there is none.
Result<int64_t> Integer(const json& object, const char* key, int64_t least,
                        int64_t most, int64_t otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  return IntegerOf(*found, key, least, most);
}

Status ReadSeconds(const json& object, const char* key,
                   std::optional<double>* seconds) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (!found->is_number() || !(found->get<double>() >= 0) ||
      !std::isfinite(found->get<double>())) {
    return InvalidArgument(std::string(key) +
                           " is no finite number of at least 0");
  }
  *seconds = found->get<double>();
  return {};
}

Status ReadSegments(const json& object, std::vector<Share>* shares) {
  const auto found = object.find("segments");
  if (found == object.end() || !found->is_array()) {
    return InvalidArgument("segments is missing or no list");
  }
  for (size_t i = 0; i < found->size(); ++i) {
    const json& segment = (*found)[i];
    const std::string name = "segments[" + std::to_string(i) + "]";
    if (!segment.is_object() || !segment.contains("tokens")) {
      return InvalidArgument(name + " is no object with tokens");
    }
    const Result<int64_t> tokens =
        IntegerOf(segment["tokens"], name + ".tokens", 1, kInt32Most);
    SKRULL_EXEC_RETURN_IF_ERROR(tokens.status());
    int64_t degree = 1;
    if (segment.contains("degree")) {
      const Result<int64_t> given =
          IntegerOf(segment["degree"], name + ".degree", 1, kMaxDegree);
      SKRULL_EXEC_RETURN_IF_ERROR(given.status());
      degree = *given;
    }
    shares->push_back(
        {.tokens = *tokens, .degree = static_cast<int32_t>(degree)});
  }
  return {};
}

Result<LogRecord> ToRecord(const json& object) {
  LogRecord record;
  const Result<int64_t> step = Integer(object, "step", 0, kInt64Most, 0);
  SKRULL_EXEC_RETURN_IF_ERROR(step.status());
  record.step = *step;
  const Result<int64_t> rank = Integer(object, "rank", 0, kInt32Most, 0);
  SKRULL_EXEC_RETURN_IF_ERROR(rank.status());
  record.rank = static_cast<int32_t>(*rank);
  const Result<int64_t> index =
      Integer(object, "micro_batch", 0, kInt32Most, 0);
  SKRULL_EXEC_RETURN_IF_ERROR(index.status());
  record.micro_batch = static_cast<int32_t>(*index);
  MeasuredMicroBatch& measured = record.measured;
  SKRULL_EXEC_RETURN_IF_ERROR(ReadSegments(object, &measured.shares));
  SKRULL_EXEC_RETURN_IF_ERROR(
      ReadSeconds(object, "compute_seconds", &measured.compute_seconds));
  SKRULL_EXEC_RETURN_IF_ERROR(
      ReadSeconds(object, "exchange_seconds", &measured.exchange_seconds));
  const Result<int64_t> peak = Integer(object, "peak_bytes", 0, kInt64Most, 0);
  SKRULL_EXEC_RETURN_IF_ERROR(peak.status());
  if (*peak > 0) measured.peak_bytes = *peak;
  measured.label = "step " + std::to_string(record.step) + " rank " +
                   std::to_string(record.rank) + " micro-batch " +
                   std::to_string(record.micro_batch);
  return record;
}

}  // namespace

std::string ToLine(const LogRecord& record) {
  const MeasuredMicroBatch& measured = record.measured;
  nlohmann::ordered_json object = {{"step", record.step},
                                   {"rank", record.rank},
                                   {"micro_batch", record.micro_batch}};
  if (measured.compute_seconds) {
    object["compute_seconds"] = *measured.compute_seconds;
  }
  if (measured.exchange_seconds) {
    object["exchange_seconds"] = *measured.exchange_seconds;
  }
  if (measured.peak_bytes) object["peak_bytes"] = *measured.peak_bytes;
  object["segments"] = nlohmann::ordered_json::array();
  for (const Share& share : measured.shares) {
    object["segments"].push_back(
        {{"tokens", share.tokens}, {"degree", share.degree}});
  }
  return object.dump();
}

Result<LogRecord> ParseLine(std::string_view line) {
  try {
    const json object = json::parse(line);
    if (!object.is_object()) return InvalidArgument("is no JSON object");
    return ToRecord(object);
  } catch (const json::exception& e) {
    return InvalidArgument(std::string("is no JSON: ") + e.what());
  }
}

Result<std::vector<LogRecord>> ReadLog(const std::string& name,
                                       std::istream* in) {
  std::vector<LogRecord> records;
  std::string line;
  for (int64_t number = 1; std::getline(*in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = name + ":" + std::to_string(number) + ": ";
    if (line.size() > kMaxLineBytes) {
      return InvalidArgument(where + "the line has " +
                             std::to_string(line.size()) + " bytes, above " +
                             std::to_string(kMaxLineBytes));
    }
    Result<LogRecord> record = ParseLine(line);
    if (!record.ok()) {
      return Status(record.status().code(), where + record.status().message());
    }
    records.push_back(*std::move(record));
  }
  if (records.empty()) return InvalidArgument(name + " holds no records");
  return records;
}

}  // namespace skrull::profile
