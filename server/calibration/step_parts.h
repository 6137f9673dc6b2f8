// A plan seen from its measurements: what its time is made of, and what each
// rank holds in it.
//
// Pure; safe from any thread. Both are of plans that are legal for `job`, whose
// cost numbers need not be those that the plan was made with.
#ifndef SKRULL_SERVER_CALIBRATION_STEP_PARTS_H_
#define SKRULL_SERVER_CALIBRATION_STEP_PARTS_H_

#include <cstdint>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"

namespace skrull::calibration {

// What one rank does over the whole step, seconds.
struct RankParts {
  double attention = 0;
  // Exchange in the micro-batches where local work does not hide it, and that
  // local work: the first less the second is what the rank waits for.
  double exchange = 0;
  double hiding = 0;
};

// The seconds of a step along its critical path: in each micro-batch of it,
// those of the slowest rank, where the larger of local work and exchange
// counts whole and the other not at all. So the sum is linear in the cost
// numbers, as long as they change neither the path nor which is larger:
// `compute` in seconds_per_flop, the overhead in seconds_per_micro_batch and
// `exchange` in the times of the links.
struct StepParts {
  double compute = 0;
  double exchange = 0;
  double micro_batches = 0;  // that pay seconds_per_micro_batch
  std::vector<RankParts> ranks;

  double Seconds(double seconds_per_micro_batch) const {
    return compute + exchange + micro_batches * seconds_per_micro_batch;
  }
};

// With pp_size > 1 the three parts are stretched alike so that they sum to the
// step's time in the pipeline. REQUIRES: the plan has micro-batches (is not of
// POLICY_CHUNK_FLOW). O(placements + ranks * micro-batches).
StepParts PartsOf(const Job& job, const Plan& plan);

// What a rank holds in the micro-batch that needs most memory.
struct PeakLoad {
  int64_t rows = 0;
  int64_t gathered = 0;  // tokens of the sequences it holds shards of
};

// By rank. Which micro-batch needs most is told by the job's bytes_per_token
// and gather_bytes_per_token; by rows alone where gather is not modelled. Of a
// plan of chunks: the most rows that are kept at a time, and no gathered
// tokens. O(placements * degree + ranks * micro-batches).
std::vector<PeakLoad> PeakLoadsOf(const Job& job, const Plan& plan);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_STEP_PARTS_H_
