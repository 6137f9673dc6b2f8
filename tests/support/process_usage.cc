#include "skrull/tests/support/process_usage.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace skrull::testing {

ProcessUsage UsageOf(pid_t pid) {
  const std::string root = "/proc/" + std::to_string(pid);
  ProcessUsage usage;
  std::ifstream file(root + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) {
      usage.resident_kib = std::stoll(line.substr(6));
    } else if (line.starts_with("Threads:")) {
      usage.threads = std::stoll(line.substr(8));
    }
  }
  std::error_code error;
  const std::filesystem::directory_iterator files(root + "/fd", error);
  if (error || usage.threads == 0) {
    throw std::runtime_error("cannot read " + root);
  }
  usage.open_files = std::distance(begin(files), end(files));
  return usage;
}

double LeastSquaresSlope(const std::vector<std::pair<double, double>>& points) {
  const auto count = static_cast<double>(points.size());
  double mean_x = 0;
  double mean_y = 0;
  for (const auto& [x, y] : points) {
    mean_x += x / count;
    mean_y += y / count;
  }
  double covariance = 0;
  double variance = 0;
  for (const auto& [x, y] : points) {
    covariance += (x - mean_x) * (y - mean_y);
    variance += (x - mean_x) * (x - mean_x);
  }
  return variance == 0 ? 0 : covariance / variance;
}

}  // namespace skrull::testing
