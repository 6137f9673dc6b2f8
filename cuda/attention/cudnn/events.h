// What a cudnn backend tells of its work: counters, and lines of a log.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_EVENTS_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_EVENTS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "skrull/cuda/attention/cudnn/counters.h"
#include "skrull/cuda/attention/cudnn/refusal.h"

namespace skrull::exec::cudnn {

// One line without its end mark. Called from any thread.
using LogSink = std::function<void(const std::string& line)>;
// To stderr, with "skrull: cudnn: " before the line.
LogSink LogToStderr();

// Thread-safe.
class Events {
 public:
  explicit Events(LogSink log) : log_(std::move(log)) {}

  void Computed() { ++cudnn_calls_; }
  void Built() { ++plans_built_; }
  void Loaded() { ++plans_loaded_; }
  void FellBack(Reason reason) {
    ++fallback_calls_[static_cast<size_t>(reason)];
  }

  // Logs `line` unless a line of that topic was logged before.
  void LogOnce(const std::string& topic, const std::string& line);

  // Adds what happened so far to all fields but struct_bytes.
  void AddTo(skrull_cudnn_counters* counters) const;

 private:
  const LogSink log_;
  std::atomic<int64_t> cudnn_calls_ = 0;
  std::atomic<int64_t> plans_built_ = 0;
  std::atomic<int64_t> plans_loaded_ = 0;
  std::array<std::atomic<int64_t>, kReasons> fallback_calls_ = {};
  std::mutex mutex_;
  std::set<std::string> logged_;  // protected by mutex_
};

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_EVENTS_H_
