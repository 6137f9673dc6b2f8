// What skrull_load is asked to do.
#ifndef SKRULL_TESTS_BENCH_LOAD_LOAD_OPTIONS_H_
#define SKRULL_TESTS_BENCH_LOAD_LOAD_OPTIONS_H_

#include <cstdint>
#include <string>

namespace skrull::load {

// The kinds of calls, and of rows in the report.
enum class Method : int8_t { kPlanBatch, kGetRankPlan, kReportStep, kStream };
inline constexpr int kMethods = 4;

// "PlanBatch" and so on; a batch on a stream is "StreamPlans".
const char* MethodName(Method method);

// Plain data; skrull_load.cc documents each member, as a flag.
struct LoadOptions {
  std::string address = "127.0.0.1:7419";
  std::string mode = "open";
  double rate = 1000;
  int64_t in_flight = 32;
  int64_t max_in_flight = 0;
  double seconds = 10;
  double warm_up = 1;
  int64_t jobs = 4;
  int64_t connections = 2;
  double weights[kMethods] = {1, 0, 0, 0};
  std::string lengths_file;
  double log_mean = 6.0;
  double log_deviation = 1.3;
  int64_t batch_size = 256;
  int64_t big_batch_size = 65536;
  double big_share = 0;
  int32_t dp_size = 4;
  int32_t cp_size = 8;
  std::string policy;
  double timeout_seconds = 30;
  uint64_t seed = 1;
  int64_t pid = 0;
  std::string job_prefix = "load";
  std::string json;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_LOAD_OPTIONS_H_
