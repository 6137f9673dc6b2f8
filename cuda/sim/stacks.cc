#include "skrull/cuda/sim/stacks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "skrull/cuda/sim/sanitizers.h"

namespace skrull::exec::sim {
namespace {

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Stacks::~Stacks() {
  for (char* mapping : mappings_) {
    // Whoever gets these addresses next must not find them forbidden.
    AllowBytes(mapping + PageBytes(), kBytes);
    munmap(mapping, PageBytes() + kBytes);
  }
}

char* Stacks::Get(size_t index) {
  while (mappings_.size() <= index) {
    mappings_.reserve(mappings_.size() + 1);
    void* mapping =
        mmap(nullptr, PageBytes() + kBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mappings_.push_back(static_cast<char*>(mapping));
    if (mprotect(mapping, PageBytes(), PROT_NONE) != 0) throw std::bad_alloc();
  }
  return mappings_[index] + PageBytes();
}

}  // namespace skrull::exec::sim
