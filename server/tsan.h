// Marks happens-before edges for ThreadSanitizer where gRPC, which comes
// without instrumentation, establishes them unseen. Empty in other builds.
#ifndef SKRULL_SERVER_TSAN_H_
#define SKRULL_SERVER_TSAN_H_

#if defined(__SANITIZE_THREAD__)
#define SKRULL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SKRULL_TSAN 1
#endif
#endif

#ifdef SKRULL_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace skrull {

inline void TsanAcquire([[maybe_unused]] void* object) {
#ifdef SKRULL_TSAN
  __tsan_acquire(object);
#endif
}

inline void TsanRelease([[maybe_unused]] void* object) {
#ifdef SKRULL_TSAN
  __tsan_release(object);
#endif
}

}  // namespace skrull

#endif  // SKRULL_SERVER_TSAN_H_
