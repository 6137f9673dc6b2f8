#include "skrull/cuda/profile/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace skrull::profile {
namespace {

// Like std::printf. REQUIRES: the result has less than 256 characters.
__attribute__((format(printf, 1, 2))) std::string Format(const char* format,
                                                         ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

// Labels of a table in one width.
class Labels {
 public:
  void Fit(const std::string& label) {
    width_ = std::max(width_, label.size());
  }
  std::string Pad(std::string label) const {
    label.resize(std::max(width_, label.size()), ' ');
    return label;
  }

 private:
  size_t width_ = 0;
};

double TeraFlops(double flops, double seconds) {
  return seconds > 0 ? 1e-12 * flops / seconds : 0;
}

}  // namespace

std::string ComputeText(std::span<const ComputeTiming> timings) {
  // Five matrix products to a forward pass's two.
  constexpr double kBackwardFlops = 2.5;
  Labels labels;
  labels.Fit("tokens");
  for (const ComputeTiming& t : timings) labels.Fit(t.measured.label);
  std::string text =
      labels.Pad("tokens") +
      "     rows  forward ms  TFLOP/s  spread  backward ms  TFLOP/s  spread"
      "     all ms\n";
  for (const ComputeTiming& t : timings) {
    text += labels.Pad(t.measured.label);
    text += Format(
        " %8lld  %10.4f  %7.3g  %5.1f%%  %11.4f  %7.3g  %5.1f%%"
        "  %9.3f\n",
        static_cast<long long>(t.rows), 1e3 * t.attention_forward.seconds,
        TeraFlops(t.attention_flops, t.attention_forward.seconds),
        100 * t.attention_forward.spread, 1e3 * t.attention_backward.seconds,
        TeraFlops(kBackwardFlops * t.attention_flops,
                  t.attention_backward.seconds),
        100 * t.attention_backward.spread,
        1e3 * t.measured.compute_seconds.value_or(0));
  }
  return text;
}

std::string LinkText(std::span<const LinkTiming> timings) {
  std::string text =
      "      bytes  ranks   gather us     GB/s  spread   reduce us     GB/s"
      "  spread\n";
  for (const LinkTiming& t : timings) {
    const auto bytes = static_cast<double>(t.bytes);
    const auto rate = [&](const Timing& timing) {
      return timing.seconds > 0 ? 1e-9 * bytes / timing.seconds : 0;
    };
    text +=
        Format("%11lld  %5d  %10.2f  %7.3g  %5.1f%%  %10.2f  %7.3g  %5.1f%%\n",
               static_cast<long long>(t.bytes), t.degree,
               1e6 * t.gather.seconds, rate(t.gather), 100 * t.gather.spread,
               1e6 * t.reduce.seconds, rate(t.reduce), 100 * t.reduce.spread);
  }
  return text;
}

std::string FitText(const LinearFit& fit) {
  std::string text;
  for (size_t i = 0; i < fit.unknowns.size(); ++i) {
    text += Format("%-41s %12.5g  +- %.2g\n", fit.unknowns[i].name.c_str(),
                   fit.value[i], fit.standard_error[i]);
  }
  Labels labels;
  labels.Fit("point");
  for (const FitResidual& r : fit.residuals) labels.Fit(r.label);
  if (!fit.residuals.empty()) {
    text += labels.Pad("point") + "     measured    predicted     error\n";
  }
  for (const FitResidual& r : fit.residuals) {
    text +=
        labels.Pad(r.label) + Format(" %12.5g %12.5g  %+7.1f%%\n", r.measured,
                                     r.predicted, 100 * r.error());
  }
  text += Format("mean error %.1f%%, worst %.1f%%: ", 100 * fit.mean_error,
                 100 * fit.worst_error);
  return text +
         (fit.verdict.ok() ? "accepted" : "refused, " + fit.verdict.message()) +
         "\n";
}

}  // namespace skrull::profile
