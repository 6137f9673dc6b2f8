#include "skrull/cuda/profile/compute_measure.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "skrull/cuda/profile/attention_work.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;

std::vector<Share> Copies(int64_t count, int64_t tokens) {
  return std::vector<Share>(static_cast<size_t>(count), {.tokens = tokens});
}

int64_t RowsOf(std::span<const ComputeCase> cases) {
  int64_t most = 1;
  for (const ComputeCase& c : cases) {
    int64_t rows = 0;
    for (const Share& share : c.shares) {
      rows += (share.tokens + share.degree - 1) / share.degree;
    }
    most = std::max(most, rows);
  }
  return most;
}

// Seconds of the linear layers for a number of rows.
struct LinearSeconds {
  double layer_forward = 0;
  double layer_backward = 0;
  double head_forward = 0;
  double head_backward = 0;
};

class Bench {
 public:
  Bench(exec::Device* device, exec::AttentionBackend* backend,
        LinearWork* linear, const ComputeOptions& options, const Clock& clock,
        exec::Stream stream)
      : device_(device),
        backend_(backend),
        linear_(linear),
        options_(options),
        clock_(clock),
        stream_(stream) {}

  Result<ComputeTiming> Time(const ComputeCase& c) {
    const ModelShape& model = options_.model;
    const exec::AttentionProblem problem = {
        .dtype = options_.dtype,
        .q_heads = static_cast<int32_t>(model.attention_head_count),
        .kv_heads = static_cast<int32_t>(model.kv_head_count),
        .head_dim = static_cast<int32_t>(model.head_dim),
        .scale = 1 / std::sqrt(static_cast<double>(model.head_dim)),
        .deterministic = options_.deterministic};
    const Result<std::unique_ptr<AttentionWork>> work =
        AttentionWork::Create(device_, backend_, problem, c.shares);
    SKRULL_EXEC_RETURN_IF_ERROR(work.status());
    ComputeTiming timing;
    timing.measured = {.label = c.label, .shares = c.shares};
    timing.rows = (*work)->rows();
    timing.attention_flops = (*work)->forward_flops();
    const Result<Timing> forward =
        Run([&] { return (*work)->Forward(stream_); });
    SKRULL_EXEC_RETURN_IF_ERROR(forward.status());
    const Result<Timing> backward =
        Run([&] { return (*work)->Backward(stream_); });
    SKRULL_EXEC_RETURN_IF_ERROR(backward.status());
    timing.attention_forward = *forward;
    timing.attention_backward = *backward;
    const Result<LinearSeconds> linear = LinearOf(timing.rows);
    SKRULL_EXEC_RETURN_IF_ERROR(linear.status());
    Sum(*linear, &timing);
    return timing;
  }

 private:
  // As a trainer runs it: all layers forward, then backward, each layer's
  // forward pass once more before its backward pass if it recomputes.
  void Sum(const LinearSeconds& linear, ComputeTiming* timing) const {
    const auto layers = static_cast<double>(options_.model.layer_count);
    const double forward =
        layers * (linear.layer_forward + timing->attention_forward.seconds);
    const double backward =
        layers * (linear.layer_backward + timing->attention_backward.seconds);
    timing->forward_seconds = forward + linear.head_forward;
    timing->measured.compute_seconds = timing->forward_seconds + backward +
                                       linear.head_backward +
                                       (options_.recomputes ? forward : 0);
  }

  Result<Timing> Run(std::function<Status()> enqueue) const {
    return Measure(
        {.enqueue = std::move(enqueue),
         .synchronize = [this] { return device_->Synchronize(stream_); }},
        clock_, options_.measure);
  }

  // Measured once for a number of rows.
  Result<LinearSeconds> LinearOf(int64_t rows) {
    const auto found = linear_seconds_.find(rows);
    if (found != linear_seconds_.end()) return found->second;
    LinearSeconds seconds;
    using Pass = Status (LinearWork::*)(int64_t, exec::Stream);
    for (const auto& [pass, to] :
         {std::pair<Pass, double*>(&LinearWork::LayerForward,
                                   &seconds.layer_forward),
          {&LinearWork::LayerBackward, &seconds.layer_backward},
          {&LinearWork::HeadForward, &seconds.head_forward},
          {&LinearWork::HeadBackward, &seconds.head_backward}}) {
      const Result<Timing> timing =
          Run([&, call = pass] { return (linear_->*call)(rows, stream_); });
      SKRULL_EXEC_RETURN_IF_ERROR(timing.status());
      *to = timing->seconds;
    }
    linear_seconds_[rows] = seconds;
    return seconds;
  }

  exec::Device* const device_;
  exec::AttentionBackend* const backend_;
  LinearWork* const linear_;
  const ComputeOptions& options_;
  const Clock& clock_;
  const exec::Stream stream_;
  std::map<int64_t, LinearSeconds> linear_seconds_;
};

}  // namespace

std::vector<ComputeCase> ComputeCases(int64_t least_tokens, int64_t most_tokens,
                                      std::span<const int32_t> degrees) {
  const auto first =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least_tokens)));
  std::vector<ComputeCase> cases;
  for (int64_t s = first; s <= most_tokens; s *= 2) {
    const std::string tokens = std::to_string(s);
    cases.push_back({.label = tokens, .shares = Copies(1, s)});
    if (const int64_t count = most_tokens / s; count > 1) {
      cases.push_back({.label = std::to_string(count) + " x " + tokens,
                       .shares = Copies(count, s)});
    }
    for (const int32_t degree : degrees) {
      if (s < degree * least_tokens) continue;
      cases.push_back({.label = tokens + " / " + std::to_string(degree),
                       .shares = {{.tokens = s, .degree = degree}}});
    }
    const int64_t half = most_tokens / 2;
    if (s < half) {
      ComputeCase mixed = {.label = std::to_string(half) + " + " +
                                    std::to_string(half / s) + " x " + tokens,
                           .shares = Copies(half / s, s)};
      mixed.shares.push_back({.tokens = half});
      cases.push_back(std::move(mixed));
    }
  }
  return cases;
}

Result<std::vector<ComputeTiming>> MeasureCompute(
    exec::Device* device, exec::AttentionBackend* backend, Gemm* gemm,
    const ComputeOptions& options, std::span<const ComputeCase> cases,
    const Clock& clock, exec::Stream stream) {
  const Result<std::unique_ptr<LinearWork>> linear = LinearWork::Create(
      device, gemm, options.model, options.dtype, RowsOf(cases));
  SKRULL_EXEC_RETURN_IF_ERROR(linear.status());
  Bench bench(device, backend, linear->get(), options, clock, stream);
  std::vector<ComputeTiming> timings;
  for (const ComputeCase& c : cases) {
    Result<ComputeTiming> timing = bench.Time(c);
    if (!timing.ok()) {
      return Status(timing.status().code(),
                    c.label + " tokens: " + timing.status().message());
    }
    timings.push_back(*std::move(timing));
  }
  return timings;
}

double BackwardForwardRatio(std::span<const ComputeTiming> timings) {
  std::vector<double> ratios;
  for (const ComputeTiming& timing : timings) {
    ratios.push_back(*timing.measured.compute_seconds / timing.forward_seconds -
                     1);
  }
  const auto middle =
      ratios.begin() + static_cast<ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

}  // namespace skrull::profile
