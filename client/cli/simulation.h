// `skrullctl simulate`: what an epoch over a list takes with each variant of a
// job, as data, text and rows. Pure.
#ifndef SKRULL_CLIENT_CLI_SIMULATION_H_
#define SKRULL_CLIENT_CLI_SIMULATION_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "skrull/cli/replay.h"
#include "skrull/cli/sweep.h"

namespace skrull::cli {

// One variant's epoch.
struct SimulatedEpoch {
  std::vector<Change> changes;     // empty: the job as it is
  std::string policy;              // name
  int64_t batch_size = 0;          // >= 1
  int64_t ranks = 0;               // >= 1
  int64_t bucket_size_tokens = 0;  // >= 1
  ReplayFigures figures;

  // Of the planned batches; nullopt if there are none.
  std::optional<double> TokensPerSecondPerRank() const;
};

struct Simulation {
  std::string job;      // path of its spec
  std::string lengths;  // path of the list
  int64_t sequence_count = 0;
  std::vector<SimulatedEpoch> epochs;  // the first is the base of the speed-ups
};

// What the rows change, a table of at most 100 columns, paths, changes and
// messages of refusals aside, a list of the refusals, and what the columns
// mean.
std::string SimulationText(const Simulation& simulation);

// Row `index` of the table. REQUIRES: 0 <= index < epochs.size().
nlohmann::ordered_json SimulationRow(const Simulation& simulation,
                                     size_t index);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_SIMULATION_H_
