// One-line forms of prometheus-cpp's builders, for the files that make metrics.
//
// What they return is owned by the registry and lives as long as it does. A
// name that exists already gets another set of labels; its help is that of the
// first call.
#ifndef SKRULL_SERVER_METRICS_BUILDERS_H_
#define SKRULL_SERVER_METRICS_BUILDERS_H_

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "prometheus/registry.h"

namespace skrull {

inline prometheus::Counter* AddCounter(prometheus::Registry& registry,
                                       const char* name, const char* help,
                                       const prometheus::Labels& labels = {}) {
  return &prometheus::BuildCounter()
              .Name(name)
              .Help(help)
              .Register(registry)
              .Add(labels);
}

inline prometheus::Gauge* AddGauge(prometheus::Registry& registry,
                                   const char* name, const char* help,
                                   const prometheus::Labels& labels = {}) {
  return &prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(
      labels);
}

inline prometheus::Histogram* AddHistogram(
    prometheus::Registry& registry, const char* name, const char* help,
    const prometheus::Histogram::BucketBoundaries& buckets,
    const prometheus::Labels& labels = {}) {
  return &prometheus::BuildHistogram()
              .Name(name)
              .Help(help)
              .Register(registry)
              .Add(labels, buckets);
}

// Work of this process, seconds.
inline prometheus::Histogram::BucketBoundaries SecondsBuckets() {
  return {1e-6, 2.5e-6, 5e-6,   1e-5, 2.5e-5, 5e-5,  1e-4, 2.5e-4,
          5e-4, 1e-3,   2.5e-3, 5e-3, 0.01,   0.025, 0.05, 0.1,
          0.25, 0.5,    1,      2.5,  5,      10};
}

// What callers wait for, seconds: from an answer out of memory to a wait for
// other ranks.
inline prometheus::Histogram::BucketBoundaries WaitBuckets() {
  return {2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025,
          0.05,   0.1,  0.25, 0.5,    1,    2.5,  5,      10,   30,   60};
}

// Shares of a whole, and excesses over 0.
inline prometheus::Histogram::BucketBoundaries RatioBuckets() {
  return {0,   0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2,
          0.3, 0.4,   0.5,   0.75, 1,    2,    5,   10};
}

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_BUILDERS_H_
