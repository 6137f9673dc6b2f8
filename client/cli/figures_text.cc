#include "skrull/cli/figures_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/cli/io.h"
#include "skrull/cli/table.h"

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

std::string PipelineTable(const std::string& header,
                          const std::vector<std::string>& names,
                          const std::vector<ReplayFigures>& figures) {
  std::vector<std::vector<std::string>> rows;
  bool any = false;
  for (size_t i = 0; i < figures.size(); ++i) {
    any = any || figures[i].mean_pipeline_seconds;
    rows.push_back({names[i], SecondsText(figures[i].mean_pipeline_seconds),
                    PercentText(figures[i].mean_pipeline_bubble)});
  }
  if (!any) return "";
  return "\n" + TextTable({header, "step in pipeline", "stages idle"}, rows);
}

}  // namespace skrull::cli
