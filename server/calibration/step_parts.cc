#include "skrull/server/calibration/step_parts.h"

#include <algorithm>

#include "skrull/planner/chunk_flow/finish_chunk_plan.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/pipeline/step_pipeline.h"

namespace skrull::calibration {
namespace {

// Seconds along a path, as StepParts has them.
struct Path {
  double compute = 0;
  double exchange = 0;
  double micro_batches = 0;
};

// What an exchange hides behind on a rank.
double HidingSeconds(const Job& job, const RankLoad& load) {
  return job.cost().overlap_scope == OverlapScope::kLayer
             ? load.local.total()
             : load.local.attention;
}

class PathClock {
 public:
  explicit PathClock(const Job& job)
      : job_(job),
        cost_(job),
        clock_(job, cost_),
        pipeline_(job),
        paths_(static_cast<size_t>(job.pool().dp_size)),
        ready_(paths_.size(), 0.0),
        ranks_(static_cast<size_t>(job.pool().ranks())) {}

  void Run(const MicroBatchPlan& micro_batch) {
    clock_.Run(micro_batch.placements);
    if (job_.parallelism().pp_size > 1) pipeline_.Add(clock_.components());
    for (const Component& component : clock_.components()) Extend(component);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankLoad& load = clock_.loads()[r];
      const double hiding = HidingSeconds(job_, load);
      ranks_[r].attention += load.local.attention + load.sharded.attention;
      if (load.exchange > hiding) {
        ranks_[r].exchange += load.exchange;
        ranks_[r].hiding += hiding;
      }
    }
  }

  StepParts Finish() {
    const auto last = std::max_element(ready_.begin(), ready_.end());
    const Path& path = paths_[static_cast<size_t>(last - ready_.begin())];
    double stretch = 1;
    if (job_.parallelism().pp_size > 1 && *last > 0) {
      stretch = pipeline_.Run().makespan_seconds / *last;
    }
    return {.compute = stretch * path.compute,
            .exchange = stretch * path.exchange,
            .micro_batches = stretch * path.micro_batches,
            .ranks = std::move(ranks_)};
  }

 private:
  // The members of a component wait for the one that is ready last, the lowest
  // of those, and take over its path.
  void Extend(const Component& component) {
    const auto first = static_cast<size_t>(component.first_dp_rank);
    const size_t end = first + static_cast<size_t>(component.dp_rank_count);
    size_t latest = first;
    for (size_t d = first + 1; d < end; ++d) {
      if (ready_[d] > ready_[latest]) latest = d;
    }
    const auto cp_size = static_cast<size_t>(job_.pool().cp_size);
    const RankLoad* slowest = &clock_.loads()[first * cp_size];
    for (size_t r = first * cp_size + 1; r < end * cp_size; ++r) {
      const RankLoad& load = clock_.loads()[r];
      if (cost_.RankSeconds(load) > cost_.RankSeconds(*slowest)) {
        slowest = &load;
      }
    }
    Path path = paths_[latest];
    path.micro_batches += 1;
    path.compute += slowest->local.total() + slowest->sharded.total();
    const double hiding = HidingSeconds(job_, *slowest);
    if (slowest->exchange > hiding) {
      path.exchange += slowest->exchange;
      path.compute -= hiding;
    }
    for (size_t d = first; d < end; ++d) {
      paths_[d] = path;
      ready_[d] = clock_.slot(static_cast<int32_t>(d)).end;
    }
  }

  const Job& job_;
  const CostModel cost_;
  StepClock clock_;
  StepPipeline pipeline_;
  std::vector<Path> paths_;    // per DP rank: what led to ready_
  std::vector<double> ready_;  // per DP rank
  std::vector<RankParts> ranks_;
};

std::vector<PeakLoad> ChunkPeakLoads(const Job& job, const ChunkPlan& plan) {
  std::vector<PeakLoad> peaks(static_cast<size_t>(job.pool().ranks()));
  const auto cp_size = static_cast<size_t>(job.pool().cp_size);
  for (const ChunkSchedule& schedule : plan.schedules) {
    const int64_t rows = MostKeptRows(plan, schedule);
    for (size_t r = 0; r < cp_size; ++r) {
      peaks[static_cast<size_t>(schedule.dp_rank) * cp_size + r].rows = rows;
    }
  }
  return peaks;
}

}  // namespace

StepParts PartsOf(const Job& job, const Plan& plan) {
  PathClock clock(job);
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    clock.Run(micro_batch);
  }
  return clock.Finish();
}

std::vector<PeakLoad> PeakLoadsOf(const Job& job, const Plan& plan) {
  if (plan.chunk_plan) return ChunkPeakLoads(job, *plan.chunk_plan);
  const CostModel cost(job);
  StepClock clock(job, cost);
  const double row_bytes = job.models_gather() ? job.bytes_per_token() : 1;
  const auto bytes = [&](const PeakLoad& load) {
    return static_cast<double>(load.rows) * row_bytes +
           static_cast<double>(load.gathered) * job.gather_bytes_per_token();
  };
  std::vector<PeakLoad> peaks(static_cast<size_t>(job.pool().ranks()));
  std::vector<PeakLoad> loads(peaks.size());
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    clock.Run(micro_batch.placements);
    for (size_t r = 0; r < loads.size(); ++r) {
      loads[r] = {.rows = clock.loads()[r].tokens};
    }
    for (const SequencePlacement& p : micro_batch.placements) {
      if (p.degree == 1) continue;
      for (int32_t r = p.first_rank; r < p.first_rank + p.degree; ++r) {
        loads[static_cast<size_t>(r)].gathered += p.token_count;
      }
    }
    for (size_t r = 0; r < loads.size(); ++r) {
      if (bytes(loads[r]) > bytes(peaks[r])) peaks[r] = loads[r];
    }
  }
  return peaks;
}

}  // namespace skrull::calibration
