// The process as Linux sees it, under the names that Prometheus' own client
// libraries use.
#ifndef SKRULL_SERVER_METRICS_PROCESS_METRICS_H_
#define SKRULL_SERVER_METRICS_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace skrull {

// Reads /proc/self whenever it is collected. What cannot be read is left out.
// Thread-safe.
class ProcessMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_PROCESS_METRICS_H_
