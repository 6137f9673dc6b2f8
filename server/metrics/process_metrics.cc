#include "skrull/server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace skrull {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily One(const char* name, const char* help, MetricType type,
                 double value) {
  prometheus::ClientMetric metric;
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {.name = name, .help = help, .type = type, .metric = {metric}};
}

// Fields of /proc/self/stat as proc(5) counts them, from 1.
struct ProcessStat {
  int64_t cpu_ticks = 0;    // 14 and 15
  int64_t start_ticks = 0;  // 22, since the machine started
  int64_t virtual_bytes = 0;
  int64_t resident_pages = 0;
};

std::optional<ProcessStat> ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The second field is a name in parentheses, which may hold spaces.
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 2));
  std::string state;
  rest >> state;
  int64_t fields[25] = {};
  for (int field = 4; field <= 24; ++field) rest >> fields[field];
  if (!rest) return std::nullopt;
  return ProcessStat{.cpu_ticks = fields[14] + fields[15],
                     .start_ticks = fields[22],
                     .virtual_bytes = fields[23],
                     .resident_pages = fields[24]};
}

// When the machine started, Unix time.
std::optional<int64_t> BootSeconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  std::string line;
  while (file >> name) {
    int64_t seconds = 0;
    if (name == "btime" && file >> seconds) return seconds;
    if (!std::getline(file, line)) break;
  }
  return std::nullopt;
}

std::optional<int64_t> CountOpenFiles() {
  std::error_code error;
  int64_t count = 0;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error);
       !error && it != end; it.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count - 1;  // the directory itself was open
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics::Collect() const {
  std::vector<MetricFamily> families;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (const auto stat = ReadStat()) {
    const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
    families.push_back(One("process_cpu_seconds_total",
                           "CPU time of the process, user and system.",
                           MetricType::Counter,
                           static_cast<double>(stat->cpu_ticks) / ticks));
    families.push_back(One("process_resident_memory_bytes",
                           "Memory of the process that is in RAM.",
                           MetricType::Gauge,
                           static_cast<double>(stat->resident_pages) * page));
    families.push_back(One("process_virtual_memory_bytes",
                           "Address space of the process.", MetricType::Gauge,
                           static_cast<double>(stat->virtual_bytes)));
    if (const auto boot = BootSeconds()) {
      families.push_back(
          One("process_start_time_seconds",
              "When the process started, Unix time.", MetricType::Gauge,
              static_cast<double>(*boot) +
                  static_cast<double>(stat->start_ticks) / ticks));
    }
  }
  if (const auto files = CountOpenFiles()) {
    families.push_back(One("process_open_fds",
                           "Files and connections the process has open.",
                           MetricType::Gauge, static_cast<double>(*files)));
  }
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families.push_back(
        One("process_max_fds", "Most files and connections it may have open.",
            MetricType::Gauge, static_cast<double>(limit.rlim_cur)));
  }
  return families;
}

}  // namespace skrull
