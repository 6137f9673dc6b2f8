#include "skrull/planner/explanation_checker.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/planner/checker_status.h"

namespace skrull {

using checker::Broken;

absl::Status CheckExplanation(const Job& job, int64_t sequences,
                              const PlanSummary& summary) {
  if (!summary.explanation) return absl::OkStatus();
  const Explanation& e = *summary.explanation;
  const std::string where = "explanation";
  if (e.rank < 0 || e.rank >= job.pool().ranks()) {
    return Broken("figures", where,
                  absl::StrCat("rank ", e.rank, " is not in the pool of ",
                               job.pool().ranks()));
  }
  if (e.sequence < 0 || e.sequence >= sequences) {
    return Broken("figures", where,
                  absl::StrCat("sequence ", e.sequence,
                               " is not in the batch of ", sequences));
  }
  if (!(e.sequence_share >= 0 && e.sequence_share <= 1)) {
    return Broken("figures", where,
                  absl::StrCat("sequence_share is ", e.sequence_share,
                               ", not in [0, 1]"));
  }
  for (const WhatIf& what_if : e.what_ifs) {
    if (!(what_if.lower_bound_seconds >= 0 &&
          what_if.lower_bound_seconds < summary.lower_bound_seconds)) {
      return Broken("figures", where,
                    absl::StrCat(what_if.field, " ", what_if.value,
                                 " does not lower the bound: ",
                                 what_if.lower_bound_seconds));
    }
  }
  return absl::OkStatus();
}

}  // namespace skrull
