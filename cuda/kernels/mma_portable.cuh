// The functions of mma.cuh in C++, for kernels that run on the CPU. Included by
// it alone.
//
// They are stricter than the hardware where that finds mistakes: a copy arrives
// at the wait and not before, until then its bytes are NaN, and an address that
// is not aligned fails the launch.
#ifndef SKRULL_CUDA_KERNELS_MMA_PORTABLE_CUH_
#define SKRULL_CUDA_KERNELS_MMA_PORTABLE_CUH_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "skrull/cuda/cpu/half.h"
#include "skrull/cuda/kernels/mma.cuh"
#include "skrull/cuda/sim/thread.h"

namespace skrull::exec::kernels {
namespace portable {

// The storage type of cpu/half.h behind a type of mma.cuh.
template <class T>
struct StorageOf;
template <>
struct StorageOf<Bf16> {
  using Type = BFloat16;
};
template <>
struct StorageOf<Fp16> {
  using Type = Float16;
};

template <class T>
float ToFloat(uint16_t bits) {
  typename StorageOf<T>::Type value;
  value.bits = bits;
  return static_cast<float>(value);
}

inline uint16_t Half(uint32_t pair, int which) {
  return static_cast<uint16_t>(pair >> (16 * which));
}

template <class Argument>
using Lanes = std::array<Argument*, sim::kWarpSize>;

struct Product {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};

// The whole product, by the last lane that came.
template <class T>
void CombineProducts(const Lanes<Product>& lanes) {
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < sim::kWarpSize; ++l) {
    const Product& lane = *lanes[static_cast<size_t>(l)];
    const int g = l / 4;
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * (l % 4) + i;
      a[g][t] = ToFloat<T>(Half(lane.a[0], i));
      a[g + 8][t] = ToFloat<T>(Half(lane.a[1], i));
      a[g][t + 8] = ToFloat<T>(Half(lane.a[2], i));
      a[g + 8][t + 8] = ToFloat<T>(Half(lane.a[3], i));
      b[t][g] = ToFloat<T>(Half(lane.b[0], i));
      b[t + 8][g] = ToFloat<T>(Half(lane.b[1], i));
    }
  }
  float sums[16][8] = {};
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) sums[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int l = 0; l < sim::kWarpSize; ++l) {
    float* c = lanes[static_cast<size_t>(l)]->c;
    for (int i = 0; i < 4; ++i) {
      c[i] += sums[l / 4 + 8 * (i / 2)][2 * (l % 4) + i % 2];
    }
  }
}

struct MatrixLoad {
  uint32_t* r;
  const void* row;
};

template <bool kTransposed>
void CombineMatrixLoads(const Lanes<MatrixLoad>& lanes) {
  for (size_t i = 0; i < 4; ++i) {
    uint16_t matrix[8][8];
    for (size_t r = 0; r < 8; ++r) {
      const void* row = lanes[8 * i + r]->row;
      if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        throw std::runtime_error("a matrix row is not aligned to 16 bytes");
      }
      std::memcpy(matrix[r], row, sizeof(matrix[r]));
    }
    for (size_t l = 0; l < sim::kWarpSize; ++l) {
      const size_t g = l / 4;
      const size_t t = 2 * (l % 4);
      const uint32_t first = kTransposed ? matrix[t][g] : matrix[g][t];
      const uint32_t second = kTransposed ? matrix[t + 1][g] : matrix[g][t + 1];
      lanes[l]->r[i] = first | second << 16;
    }
  }
}

// A thread's copies under way.
class CopyQueue {
 public:
  static CopyQueue* OfThread() {
    std::shared_ptr<void>& storage = sim::ThreadStorage();
    if (storage == nullptr) storage = std::make_shared<CopyQueue>();
    return static_cast<CopyQueue*>(storage.get());
  }

  void Start(void* shared, const void* global, size_t bytes, bool valid) {
    if (reinterpret_cast<uintptr_t>(shared) % bytes != 0 ||
        (valid && reinterpret_cast<uintptr_t>(global) % bytes != 0)) {
      throw std::runtime_error("an asynchronous copy is not aligned");
    }
    std::memset(shared, 0xFF, bytes);
    copies_.push_back({shared, valid ? global : nullptr, bytes});
  }

  void Commit() { group_ends_.push_back(copies_.size()); }

  void Wait(size_t pending) {
    if (group_ends_.size() <= pending) return;
    const size_t groups = group_ends_.size() - pending;
    const size_t end = group_ends_[groups - 1];
    for (size_t i = 0; i < end; ++i) Finish(copies_[i]);
    copies_.erase(copies_.begin(),
                  copies_.begin() + static_cast<ptrdiff_t>(end));
    group_ends_.erase(group_ends_.begin(),
                      group_ends_.begin() + static_cast<ptrdiff_t>(groups));
    for (size_t& group_end : group_ends_) group_end -= end;
  }

 private:
  struct Copy {
    void* shared;
    const void* global;  // null: zeros
    size_t bytes;
  };

  static void Finish(const Copy& copy) {
    if (copy.global == nullptr) {
      std::memset(copy.shared, 0, copy.bytes);
    } else {
      std::memcpy(copy.shared, copy.global, copy.bytes);
    }
  }

  std::vector<Copy> copies_;  // oldest first
  // Of the committed groups: copies_[0 .. end) are of it or of older ones.
  std::vector<size_t> group_ends_;
};

}  // namespace portable

template <class T>
uint32_t PackPair(float first, float second) {
  using Storage = typename portable::StorageOf<T>::Type;
  return uint32_t{Storage(first).bits} | uint32_t{Storage(second).bits} << 16;
}

template <class T>
float2 UnpackPair(uint32_t pair) {
  return make_float2(portable::ToFloat<T>(portable::Half(pair, 0)),
                     portable::ToFloat<T>(portable::Half(pair, 1)));
}

template <class T>
void Multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  portable::Product product{c, a, {b0, b1}};
  sim::CombineLanes(~0U, &product,
                    [](const portable::Lanes<portable::Product>& lanes) {
                      portable::CombineProducts<T>(lanes);
                    });
}

inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  portable::MatrixLoad load{r, row};
  sim::CombineLanes(~0U, &load,
                    [](const portable::Lanes<portable::MatrixLoad>& lanes) {
                      portable::CombineMatrixLoads<false>(lanes);
                    });
}

inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  portable::MatrixLoad load{r, row};
  sim::CombineLanes(~0U, &load,
                    [](const portable::Lanes<portable::MatrixLoad>& lanes) {
                      portable::CombineMatrixLoads<true>(lanes);
                    });
}

inline void CopyAsync16(void* shared, const void* global, bool valid) {
  portable::CopyQueue::OfThread()->Start(shared, global, 16, valid);
}

inline void CopyAsync4(void* shared, const void* global, bool valid) {
  portable::CopyQueue::OfThread()->Start(shared, global, 4, valid);
}

inline void CommitCopies() { portable::CopyQueue::OfThread()->Commit(); }

template <int kPending>
void WaitForCopies() {
  portable::CopyQueue::OfThread()->Wait(kPending);
}

inline float Exp2(float x) { return std::exp2(x); }

}  // namespace skrull::exec::kernels

#endif  // SKRULL_CUDA_KERNELS_MMA_PORTABLE_CUH_
