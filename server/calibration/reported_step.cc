#include "skrull/server/calibration/reported_step.h"

#include <algorithm>

namespace skrull::calibration {
namespace {

// Ranks that must have reported.
int64_t QuorumOf(int64_t ranks) {
  const int64_t half = (std::min(ranks, kMaxReports) + 1) / 2;
  return std::max(half, std::min<int64_t>(ranks, 2));
}

}  // namespace

double SecondsOf(const google::protobuf::Duration& duration) {
  return std::max(0.0, static_cast<double>(duration.seconds()) +
                           1e-9 * static_cast<double>(duration.nanos()));
}

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool IsComplete(const ReportedStep& step, int64_t ranks) {
  return std::count_if(step.reports.begin(), step.reports.end(),
                       [](const v1::StepReport& report) {
                         return report.outcome() == v1::STEP_OUTCOME_OK;
                       }) >= QuorumOf(ranks);
}

std::optional<double> MeasuredSeconds(const ReportedStep& step, int64_t ranks) {
  std::vector<double> seconds;
  for (const v1::StepReport& report : step.reports) {
    const double value = SecondsOf(report.step_time());
    if (report.outcome() == v1::STEP_OUTCOME_OK && value > 0) {
      seconds.push_back(value);
    }
  }
  if (std::ssize(seconds) < QuorumOf(ranks)) return std::nullopt;
  return Median(std::move(seconds));
}

std::vector<int64_t> LengthsOf(const Plan& plan) {
  std::vector<int64_t> lengths;
  const auto add = [&](int32_t sequence, int32_t tokens) {
    const auto index = static_cast<size_t>(sequence);
    if (index >= lengths.size()) lengths.resize(index + 1);
    lengths[index] = tokens;
  };
  for (const MicroBatchPlan& micro_batch : plan.micro_batches) {
    for (const SequencePlacement& p : micro_batch.placements) {
      add(p.sequence, p.token_count);
    }
  }
  if (plan.chunk_plan) {
    for (const Chunk& chunk : plan.chunk_plan->chunks) {
      for (const ChunkPiece& piece : chunk.pieces) {
        add(piece.sequence, piece.token_count);
      }
    }
  }
  return lengths;
}

}  // namespace skrull::calibration
