// A rendezvous of threads of one process, through the C interface.
#ifndef SKRULL_TESTS_CUDA_C_API_MEETING_H_
#define SKRULL_TESTS_CUDA_C_API_MEETING_H_

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/tests/cuda/c_api_rank.h"

namespace skrull::exec::testing {

// Once.
struct Meeting {
  std::mutex mutex;
  std::condition_variable condition;
  std::string offer;
  int32_t fail_with = 0;

  static int32_t Meet(void* context, const char* offer, int64_t offer_bytes,
                      char* answer, int64_t* answer_bytes, char* message,
                      int64_t) {
    auto* self = static_cast<Meeting*>(context);
    std::unique_lock lock(self->mutex);
    if (self->fail_with != 0) {
      std::memcpy(message, "nobody", 7);
      return self->fail_with;
    }
    if (offer_bytes > 0) {
      self->offer.assign(offer, static_cast<size_t>(offer_bytes));
      self->condition.notify_all();
    }
    self->condition.wait(lock, [&] { return !self->offer.empty(); });
    const auto size = static_cast<int64_t>(self->offer.size());
    if (size > *answer_bytes) return SKRULL_INTERNAL;
    std::memcpy(answer, self->offer.data(), self->offer.size());
    *answer_bytes = size;
    return 0;
  }
};

inline skrull_comm_options HostOptions(int32_t rank, int32_t ranks,
                                       Meeting* meeting) {
  skrull_comm_options options = CommOptions(rank, ranks, nullptr);
  options.name = "host";
  options.rendezvous = Meeting::Meet;
  options.rendezvous_context = meeting;
  return options;
}

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_C_API_MEETING_H_
