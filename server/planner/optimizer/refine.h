// Local search on a finished state.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_REFINE_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_REFINE_H_

#include <cstdint>

#include "skrull/planner/job.h"
#include "skrull/planner/optimizer/search_state.h"

namespace skrull {

// Relieves one critical slot after another: one that the step's end waits for.
// One of its sequences moves to another block, of any degree, of any
// micro-batch, or a local one is swapped with a shorter local one elsewhere. A
// step is taken only if no slot it touches is then critical; ties go to the
// first found. Ends when no critical slot has such a step, or after about
// `steps` steps of search: a trial, and a look for the next critical slot,
// count as one for every 32 slots they read. Returns the steps made.
int64_t Refine(const Job& job, int64_t steps, SearchState& state);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_REFINE_H_
