// What came of the calls: durations of answers and of refusals, by method.
#ifndef SKRULL_TESTS_BENCH_LOAD_RECORDER_H_
#define SKRULL_TESTS_BENCH_LOAD_RECORDER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "grpcpp/grpcpp.h"
#include "skrull/tests/bench/load/histogram.h"
#include "skrull/tests/bench/load/load_options.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::load {

using Time = std::chrono::steady_clock::time_point;

// Why a call failed: the reason of its ErrorDetail, else the name of its code.
std::string ReasonOf(const grpc::Status& status);
std::string ReasonOf(const v1::RpcStatus& status);

// Thread-safe.
class Recorder {
 public:
  struct Row {
    Histogram answered;                        // microseconds since it was due
    std::map<std::string, Histogram> refused;  // by reason, the same
  };
  struct Totals {
    std::array<Row, kMethods> rows;
    Histogram lag;  // microseconds from when a call was due until it was sent
    int64_t held_back = 0;  // calls that were due and not made
  };

  // Calls due before `begin` are not recorded. REQUIRES: before the first Add.
  void RecordFrom(Time begin) { begin_ = begin; }

  // A call of `method` that was due at `due`, was sent at `sent` and has ended
  // now; an empty `reason` means answered.
  void Add(Method method, Time due, Time sent, const std::string& reason);

  // A call that was due at `due` is not made.
  void HoldBack(Time due);

  Totals Take();

 private:
  Time begin_ = Time::min();
  std::mutex mutex_;
  Totals totals_;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_RECORDER_H_
