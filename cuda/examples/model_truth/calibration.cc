#include "skrull/cuda/examples/model_truth/calibration.h"

#include <set>

#include "skrull/cuda/examples/model_truth/statistics.h"

namespace skrull::examples {
namespace {

// As JobText says: forward and backward; two gathers and one reduction.
constexpr double kPasses = 3;
constexpr double kCollectives = 3;
constexpr double kBytesPerElement = 4;

}  // namespace

MeasuredMicroBatch ToMeasured(const RankMicroBatch& micro_batch,
                              const RankSeconds& seconds) {
  MeasuredMicroBatch measured;
  measured.segments = micro_batch.segments;
  measured.seconds = seconds;
  std::set<Block> blocks;
  for (const RankSegment& segment : micro_batch.segments) {
    if (segment.is_local()) continue;
    blocks.insert(segment.block);
    measured.block_tokens += segment.token_count;
  }
  measured.block_count = static_cast<int64_t>(blocks.size());
  return measured;
}

Coefficients Fit(const ModelConfig& model,
                 const std::vector<MeasuredMicroBatch>& measured) {
  const double h = model.hidden_size;
  const auto q = static_cast<double>(model.q_size());
  const auto kv = static_cast<double>(model.kv_size());
  const double layers = model.layer_count;
  const double linear =
      kPasses *
      (layers * 2 * (2 * h * q + 2 * h * kv + 3 * h * model.intermediate_size) +
       2 * h * model.vocab_size);
  const double attention = kPasses * layers * 2 * q;

  std::vector<Observation> computing;
  std::vector<Observation> exchange;
  for (const MeasuredMicroBatch& mb : measured) {
    double flops = 0;
    double short_loss = 0;  // of one token of efficiency_half_tokens
    for (const RankSegment& segment : mb.segments) {
      const auto s = static_cast<double>(segment.token_count);
      flops += (linear * s + attention * s * s) / segment.block.degree;
      short_loss += attention * s;
    }
    if (flops > 0 && mb.seconds.compute() > 0) {
      computing.push_back({.x = {flops, short_loss, 1},
                           .y = mb.seconds.compute(),
                           .weight = 1 / mb.seconds.compute()});
    }
    if (mb.block_count > 0 && mb.seconds.exchange > 0) {
      const double calls = kCollectives * layers;
      exchange.push_back({.x = {calls * static_cast<double>(mb.block_count),
                                calls * static_cast<double>(mb.block_tokens) *
                                    2 * kv * kBytesPerElement,
                                0},
                          .y = mb.seconds.exchange,
                          .weight = 1 / mb.seconds.exchange});
    }
  }
  const auto compute = NonNegativeLeastSquares(computing);
  Coefficients fitted;
  fitted.seconds_per_flop = compute[0];
  fitted.efficiency_half_tokens = compute[0] > 0 ? compute[1] / compute[0] : 0;
  fitted.seconds_per_micro_batch = compute[2];
  fitted.seconds_per_collective = 0;
  fitted.seconds_per_byte = 0;
  if (!exchange.empty()) {
    const auto link = NonNegativeLeastSquares(exchange);
    fitted.seconds_per_collective = link[0];
    fitted.seconds_per_byte = link[1];
  }
  return fitted;
}

}  // namespace skrull::examples
