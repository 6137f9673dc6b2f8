// How long a check may go on measuring.
#ifndef SKRULL_CUDA_CHECK_BUDGET_H_
#define SKRULL_CUDA_CHECK_BUDGET_H_

#include <algorithm>
#include <utility>

#include "skrull/cuda/profile/measure.h"

namespace skrull::check {

// Runs cases as long as they are expected to end in time. A case's `work` is
// in any unit, the same for all cases; the best seconds a unit of the cases
// before tell how long it will take. The best, since short cases also pay for
// what is done once: building plans, loading kernels. Used by one thread.
class Budget {
 public:
  Budget(profile::Clock clock, double seconds)
      : clock_(std::move(clock)), end_(clock_() + seconds) {}

  double left() const { return end_ - clock_(); }

  // Calls run(), which returns whether its time counts, unless it is expected
  // to end too late: then false. REQUIRES: work > 0.
  template <class F>
  bool Run(double work, const F& run) {
    const double begin = clock_();
    if (begin >= end_ || begin + work * seconds_per_work_ > end_) return false;
    if (!run()) return true;
    const double rate = (clock_() - begin) / work;
    seconds_per_work_ = measured_ ? std::min(seconds_per_work_, rate) : rate;
    measured_ = true;
    return true;
  }

 private:
  const profile::Clock clock_;
  const double end_;
  bool measured_ = false;
  double seconds_per_work_ = 0;  // 0 until something was measured
};

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_BUDGET_H_
