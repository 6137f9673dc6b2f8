// What the sanitizers must be told, or nothing where they are not on.
#ifndef SKRULL_CUDA_SIM_SANITIZERS_H_
#define SKRULL_CUDA_SIM_SANITIZERS_H_

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define SKRULL_SIM_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define SKRULL_SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SKRULL_SIM_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SKRULL_SIM_TSAN 1
#endif
#endif

#ifdef SKRULL_SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SKRULL_SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// ThreadSanitizer keeps a list of calls for each fiber, so the functions that
// switch between them must not be on it, nor call others that are.
#ifdef SKRULL_SIM_TSAN
#define SKRULL_SIM_UNLISTED __attribute__((no_sanitize("thread"), noinline))
#define SKRULL_SIM_TSAN_ONLY(statement) statement
#else
#define SKRULL_SIM_UNLISTED
#define SKRULL_SIM_TSAN_ONLY(statement)
#endif

namespace skrull::exec::sim {

// AddressSanitizer's part. Before the switch to another stack. What it stores
// in `kept` is for EnterStack when control returns; `kept` is null if it never
// will.
SKRULL_SIM_UNLISTED inline void LeaveStack(
    [[maybe_unused]] void** kept, [[maybe_unused]] const void* next_stack,
    [[maybe_unused]] size_t next_bytes) {
#ifdef SKRULL_SIM_ASAN
  __sanitizer_start_switch_fiber(kept, next_stack, next_bytes);
#endif
}

// After it, on the new stack. Tells which stack was left.
SKRULL_SIM_UNLISTED inline void EnterStack(
    [[maybe_unused]] void* kept, [[maybe_unused]] const void** left_stack,
    [[maybe_unused]] size_t* left_bytes) {
#ifdef SKRULL_SIM_ASAN
  __sanitizer_finish_switch_fiber(kept, left_stack, left_bytes);
#endif
}

// Every access to the bytes is an error until they are allowed again.
inline void ForbidBytes([[maybe_unused]] const void* begin,
                        [[maybe_unused]] size_t bytes) {
#ifdef SKRULL_SIM_ASAN
  __asan_poison_memory_region(begin, bytes);
#endif
}
inline void AllowBytes([[maybe_unused]] const void* begin,
                       [[maybe_unused]] size_t bytes) {
#ifdef SKRULL_SIM_ASAN
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_SANITIZERS_H_
