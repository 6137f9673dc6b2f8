// Series by job, for daemons that were asked for them: the one place where a
// label is not from a closed set.
#ifndef SKRULL_SERVER_METRICS_JOB_SERIES_H_
#define SKRULL_SERVER_METRICS_JOB_SERIES_H_

#include <functional>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "skrull/server/status/status_board.h"

namespace skrull {

// Thread-safe if its source is.
class JobSeries : public prometheus::Collectable {
 public:
  // The jobs to have series, each name once. Who gives them bounds their
  // number. Called whenever the series are collected.
  using Source = std::function<std::vector<StatusBoard::JobActivity>()>;

  explicit JobSeries(Source source) : source_(std::move(source)) {}

  // The families are there without a job, too. A job without a plan has the
  // series of counters alone.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Source source_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_JOB_SERIES_H_
