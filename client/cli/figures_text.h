// Figures as cells of a text table; "-" where there is no value.
#ifndef SKRULL_CLIENT_CLI_FIGURES_TEXT_H_
#define SKRULL_CLIENT_CLI_FIGURES_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "skrull/cli/replay.h"

namespace skrull::cli {

std::string SecondsText(const std::optional<double>& seconds);   // "4.56 ms"
std::string PercentText(const std::optional<double>& fraction);  // "12.34 %"
std::string FactorText(const std::optional<double>& factor);     // "3.21 x"
std::string NumberText(const std::optional<double>& number);     // "12.5"
// Planned of all batches: "18/20".
std::string PlannedText(const ReplayFigures& figures);

// A table of its own, after an empty line: what the rows of `names` take
// through the job's stages; empty if it has one stage. `header` is that of the
// names. REQUIRES: as many names as figures.
std::string PipelineTable(const std::string& header,
                          const std::vector<std::string>& names,
                          const std::vector<ReplayFigures>& figures);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_FIGURES_TEXT_H_
