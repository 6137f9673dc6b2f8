// How large the store's files are.
#ifndef SKRULL_SERVER_METRICS_STORE_SIZE_H_
#define SKRULL_SERVER_METRICS_STORE_SIZE_H_

#include <string>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace skrull {

// Thread-safe.
class StoreSize : public prometheus::Collectable {
 public:
  // `store` as in ServerOptions: only that of sqlite:PATH has a size.
  explicit StoreSize(const std::string& store);

  // Looks at the files; without a sample if there are none.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string path_;  // empty = no files
};

}  // namespace skrull

#endif  // SKRULL_SERVER_METRICS_STORE_SIZE_H_
