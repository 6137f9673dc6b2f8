#include "skrull/cli/calibrations.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/table.h"

namespace skrull::cli {
namespace {

template <typename T>
std::string Cell(const std::optional<T>& value) {
  return value ? absl::StrCat(*value) : "-";
}

std::string Percent(const std::optional<double>& share) {
  return share ? absl::StrFormat("%.1f%%", 100 * *share) : "-";
}

// "REFIT" of "CALIBRATION_CAUSE_REFIT".
std::string ShortCause(const std::string& cause) {
  const std::string prefix = "CALIBRATION_CAUSE_";
  return cause.rfind(prefix, 0) == 0 ? cause.substr(prefix.size()) : cause;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> CalibratedNumbers(
    const CalibrationInfo& epoch) {
  std::vector<std::pair<std::string, std::string>> numbers;
  const auto add = [&](const char* name, const auto& value) {
    if (value) numbers.emplace_back(name, absl::StrCat(*value));
  };
  add("memory.bucket_size_tokens", epoch.bucket_size_tokens);
  add("memory.static_bytes", epoch.static_bytes);
  add("memory.bytes_per_token", epoch.bytes_per_token);
  add("cost.seconds_per_flop", epoch.seconds_per_flop);
  add("cost.seconds_per_micro_batch", epoch.seconds_per_micro_batch);
  add("link_scale", epoch.link_scale);
  return numbers;
}

std::string CalibrationsText(const std::vector<CalibrationInfo>& epochs) {
  std::vector<std::vector<std::string>> rows;
  for (const CalibrationInfo& epoch : epochs) {
    const bool first = epoch.epoch == 0;
    rows.push_back({absl::StrCat(epoch.epoch), ShortCause(epoch.cause),
                    first ? "-" : absl::StrCat(epoch.step),
                    first ? "-" : absl::StrCat(epoch.attempt),
                    Cell(epoch.bucket_size_tokens),
                    Cell(epoch.seconds_per_flop),
                    Cell(epoch.seconds_per_micro_batch), Cell(epoch.link_scale),
                    Cell(epoch.bytes_per_token), Cell(epoch.static_bytes),
                    Percent(epoch.error_before), Percent(epoch.error_after)});
  }
  return TextTable(
      {"EPOCH", "CAUSE", "STEP", "ATTEMPT", "BUCKET", "S/FLOP", "S/BATCH",
       "LINK", "BYTES/TOKEN", "STATIC", "ERROR BEFORE", "AFTER"},
      rows);
}

std::string CalibrationsJson(const std::vector<CalibrationInfo>& epochs) {
  std::string text;
  for (const CalibrationInfo& epoch : epochs) {
    nlohmann::ordered_json row = {{"epoch", epoch.epoch},
                                  {"cause", epoch.cause}};
    if (epoch.epoch > 0) {
      row["step"] = epoch.step;
      row["attempt"] = epoch.attempt;
    }
    const auto add = [&](const char* name, const auto& value) {
      if (value) row[name] = *value;
    };
    add("seconds_per_flop", epoch.seconds_per_flop);
    add("seconds_per_micro_batch", epoch.seconds_per_micro_batch);
    add("link_scale", epoch.link_scale);
    add("bytes_per_token", epoch.bytes_per_token);
    add("static_bytes", epoch.static_bytes);
    add("bucket_size_tokens", epoch.bucket_size_tokens);
    add("out_of_memory_tokens", epoch.out_of_memory_tokens);
    add("error_before", epoch.error_before);
    add("error_after", epoch.error_after);
    if (!epoch.text.empty()) row["text"] = epoch.text;
    text += JsonRow(row);
  }
  return text;
}

}  // namespace skrull::cli
