// Stacks of the fibers that stand for CUDA threads.
#ifndef SKRULL_CUDA_SIM_STACKS_H_
#define SKRULL_CUDA_SIM_STACKS_H_

#include <cstddef>
#include <vector>

namespace skrull::exec::sim {

// A pool that grows and never shrinks before it dies. Below each stack lies a
// page that may not be touched, so that an overflow is a crash. Not
// thread-safe.
class Stacks {
 public:
  // A kernel's arrays are registers on a GPU and lie here on the CPU, several
  // times as large with a sanitizer's redzones. Untouched pages cost nothing.
  static constexpr size_t kBytes = size_t{256} << 10;

  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // Lowest byte of stack `index`, which has kBytes. The same for equal indices.
  // Throws std::bad_alloc if there is no memory.
  char* Get(size_t index);

 private:
  std::vector<char*> mappings_;  // each: the guard page, then the stack
};

}  // namespace skrull::exec::sim

#endif  // SKRULL_CUDA_SIM_STACKS_H_
