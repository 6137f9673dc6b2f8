#include "skrull/planner/pipeline/step_pipeline.h"

#include <algorithm>
#include <numeric>

namespace skrull {

void StepPipeline::Add(std::span<const Component> components) {
  for (const Component& component : components) {
    entries_.push_back({micro_batches_, component});
    for (int32_t i = 0; i + 1 < component.dp_rank_count; ++i) {
      joined_[static_cast<size_t>(component.first_dp_rank + i)] = 1;
    }
  }
  ++micro_batches_;
}

std::vector<Convoy> StepPipeline::Convoys() const {
  std::vector<Convoy> convoys;
  std::vector<size_t> convoy_of(joined_.size());
  for (size_t d = 0; d < joined_.size(); ++d) {
    if (d == 0 || !joined_[d - 1]) {
      convoys.push_back({static_cast<int32_t>(d), 0, {}, {}});
    }
    convoy_of[d] = convoys.size() - 1;
    ++convoys.back().dp_rank_count;
  }
  const double forward_share = 1 / (1 + job_.cost().backward_forward_ratio);
  for (const Entry& entry : entries_) {
    const Component& component = entry.component;
    Convoy& convoy =
        convoys[convoy_of[static_cast<size_t>(component.first_dp_rank)]];
    if (convoy.micro_batch.empty() ||
        convoy.micro_batch.back() != entry.micro_batch) {
      convoy.micro_batch.push_back(entry.micro_batch);
    }
    const double forward = component.seconds * forward_share;
    convoy.units.push_back(
        {.slot = static_cast<int32_t>(convoy.micro_batch.size()) - 1,
         .first_lane = component.first_dp_rank - convoy.first_dp_rank,
         .lane_count = component.dp_rank_count,
         .forward_seconds = forward,
         .backward_seconds = component.seconds - forward});
  }
  std::erase_if(convoys, [](const Convoy& c) { return c.units.empty(); });
  return convoys;
}

PipelineTime StepPipeline::Run() const {
  PipelineTime step;
  for (const Convoy& convoy : Convoys()) {
    const PipelineTime time = RunConvoy(job_, convoy);
    step.makespan_seconds =
        std::max(step.makespan_seconds, time.makespan_seconds);
    step.busy_seconds += time.busy_seconds;
  }
  return step;
}

PipelineTime RunConvoy(const Job& job, const Convoy& convoy) {
  std::vector<int32_t> order(convoy.micro_batch.size());
  std::iota(order.begin(), order.end(), 0);
  return SimulatePipeline(job.parallelism().pp_size, convoy.dp_rank_count,
                          convoy.units, order);
}

}  // namespace skrull
