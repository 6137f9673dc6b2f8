// Plans as people read them.
#ifndef SKRULL_CLIENT_CLI_PLAN_TEXT_H_
#define SKRULL_CLIENT_CLI_PLAN_TEXT_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "skrull/client/plan_types.h"

namespace skrull::cli {

// A few lines about one batch's plan, each ended by a newline.
std::string PlanText(int64_t batch, std::span<const int64_t> lengths,
                     const PlanResult& plan);

// Why the step takes as long as it does, and what would lower the bound: a line
// for each, below those of PlanText.
std::string ExplanationText(const PlanResult& plan);

// The same as PlanText for a refused batch.
std::string RefusalText(int64_t batch, const absl::Status& status);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_PLAN_TEXT_H_
