// No exception leaves the executor: one wrapper for all its public functions.
#ifndef SKRULL_CUDA_WITHOUT_EXCEPTIONS_H_
#define SKRULL_CUDA_WITHOUT_EXCEPTIONS_H_

#include <exception>
#include <new>

#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// Runs `work`, which returns a Status, and turns what it throws into one.
template <class Work>
Status WithoutExceptions(const Work& work) noexcept {
  try {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return {StatusCode::kOutOfMemory, "no host memory"};
    } catch (const std::exception& e) {
      return {StatusCode::kInternal, e.what()};
    } catch (...) {
      return {StatusCode::kInternal, "an unknown exception"};
    }
  } catch (...) {  // no memory for the message
    return {StatusCode::kOutOfMemory, {}};
  }
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_WITHOUT_EXCEPTIONS_H_
