#include "skrull/cuda/examples/cpu_trainer/step_log.h"

#include <cstddef>

#include "skrull/cuda/profile/log.h"

namespace skrull::examples {

profile::MeasuredMicroBatch ToMeasured(const RankMicroBatch& micro_batch,
                                       const RankSeconds& seconds) {
  profile::MeasuredMicroBatch measured;
  for (const RankSegment& segment : micro_batch.segments) {
    measured.shares.push_back(
        {.tokens = segment.token_count, .degree = segment.block.degree});
  }
  measured.compute_seconds = seconds.compute();
  measured.exchange_seconds = seconds.exchange;
  return measured;
}

void WriteStep(const RankPlan& plan, const std::vector<RankSeconds>& seconds,
               std::ostream* out) {
  for (size_t i = 0; i < seconds.size(); ++i) {
    profile::LogRecord record;
    record.step = plan.step;
    record.rank = plan.rank;
    record.micro_batch = static_cast<int32_t>(i);
    record.measured = ToMeasured(plan.micro_batches[i], seconds[i]);
    *out << profile::ToLine(record) << '\n';
  }
}

}  // namespace skrull::examples
