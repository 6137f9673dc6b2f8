#include "skrull/server/metrics/store_size.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

namespace skrull {
namespace {

constexpr char kScheme[] = "sqlite:";

std::optional<std::uintmax_t> SizeOf(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return std::nullopt;
  return size;
}

}  // namespace

StoreSize::StoreSize(const std::string& store)
    : path_(store.starts_with(kScheme) ? store.substr(sizeof(kScheme) - 1)
                                       : "") {}

std::vector<prometheus::MetricFamily> StoreSize::Collect() const {
  prometheus::MetricFamily family;
  family.name = "skrull_store_bytes";
  family.help =
      "Size of the store's files, with its write-ahead log; no sample for a "
      "store without files.";
  family.type = prometheus::MetricType::Gauge;
  if (!path_.empty()) {
    if (const auto size = SizeOf(path_)) {
      prometheus::ClientMetric metric;
      metric.gauge.value =
          static_cast<double>(*size + SizeOf(path_ + "-wal").value_or(0));
      family.metric.push_back(metric);
    }
  }
  return {family};
}

}  // namespace skrull
