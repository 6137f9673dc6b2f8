#include "skrull/cuda/attention/cudnn/events.h"

#include <cstdio>

namespace skrull::exec::cudnn {

static_assert(SKRULL_CUDNN_REASONS == kReasons);

LogSink LogToStderr() {
  return [](const std::string& line) {
    std::fprintf(stderr, "skrull: cudnn: %s\n", line.c_str());
  };
}

void Events::LogOnce(const std::string& topic, const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (!logged_.insert(topic).second) return;
  }
  log_(line);
}

void Events::AddTo(skrull_cudnn_counters* counters) const {
  counters->cudnn_calls += cudnn_calls_;
  counters->plans_built += plans_built_;
  counters->plans_loaded += plans_loaded_;
  for (size_t i = 0; i < fallback_calls_.size(); ++i) {
    counters->fallback_calls[i] += fallback_calls_[i];
  }
}

}  // namespace skrull::exec::cudnn
