#include "skrull/cli/figures_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/io.h"

namespace skrull::cli {

std::string SecondsText(const std::optional<double>& seconds) {
  return seconds ? HumanSeconds(*seconds) : "-";
}

std::string PercentText(const std::optional<double>& fraction) {
  return fraction ? absl::StrFormat("%.2f %%", 100 * *fraction) : "-";
}

std::string FactorText(const std::optional<double>& factor) {
  return factor ? absl::StrFormat("%.2f x", *factor) : "-";
}

std::string NumberText(const std::optional<double>& number) {
  return number ? absl::StrFormat("%.1f", *number) : "-";
}

std::string PlannedText(const ReplayFigures& figures) {
  return absl::StrCat(figures.planned_count, "/", figures.batch_count);
}

}  // namespace skrull::cli
