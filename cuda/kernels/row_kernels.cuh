// The row kernels. A warp makes one row of one tensor, lane after lane, so that
// a warp's accesses are consecutive; its run is found by bisection. No two
// warps write the same row and there are no atomics: equal inputs give equal
// bits.
#ifndef SKRULL_CUDA_KERNELS_ROW_KERNELS_CUH_
#define SKRULL_CUDA_KERNELS_ROW_KERNELS_CUH_

#include <cmath>
#include <cstdint>
#include <limits>

#include "skrull/cuda/kernels/row_jobs.h"
#include "skrull/cuda/kernels/scalar.cuh"

namespace skrull::exec::internal {

inline constexpr int kRowLanes = 32;
// Small blocks end soon after each other, and 16 of them fill an SM.
inline constexpr int kRowWarps = 4;
// Packs that a lane makes before it stores them: so many loads are under way at
// once. Memory of 5 TB/s that takes 0.7 us to answer has to have 27 KB of each
// of 132 SMs under way; the 32 warps that 64 registers a thread leave an SM,
// with 4 loads of 16 bytes a lane, have 64 KB.
inline constexpr int kRowBatch = 4;

// Elements of a pack where 16 bytes of the wider type are one.
template <class To, class From>
inline constexpr int kWideCount =
    16 /
    static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

// Where a pack of a row is, from the row's first element on.
struct PackPlace {
  int64_t dst;
  int64_t src;
};

template <int count>
__device__ __forceinline__ PackPlace PlaceOf(const RowJob& job,
                                             int32_t number) {
  const int32_t packs = job.dim / count;  // of a head
  const int32_t head = job.heads == 1 ? 0 : number / packs;
  const int32_t column = (number - head * packs) * count;
  return {head * job.dst.head_stride + column,
          head * job.src.head_stride + column};
}

// Stores make(place), a Pack<To, count>, for every pack of the row at `dst`;
// each lane makes `batch` of them at once. Called by all lanes of a warp.
template <int batch, class To, int count, class Make>
__device__ __forceinline__ void MakeRow(const RowJob& job, To* dst,
                                        const Make& make) {
  const int32_t packs = job.heads * (job.dim / count);
  const auto lane = static_cast<int32_t>(threadIdx.x % kRowLanes);
  for (int32_t first = lane; first < packs; first += batch * kRowLanes) {
    Pack<To, count> made[batch];
    int64_t at[batch];
    SKRULL_UNROLL
    for (int j = 0; j < batch; ++j) {
      const int32_t number = first + j * kRowLanes;
      if (number >= packs) continue;
      const PackPlace place = PlaceOf<count>(job, number);
      at[j] = place.dst;
      made[j] = make(place);
    }
    SKRULL_UNROLL
    for (int j = 0; j < batch; ++j) {
      if (first + j * kRowLanes < packs) StorePack(dst + at[j], made[j]);
    }
  }
}

// Calls visit(T{}) with the storage type of `dtype`.
template <class Visit>
__device__ __forceinline__ void WithType(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kFloat16:
      return visit(Float16{});
    case DType::kBFloat16:
      return visit(BFloat16{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
  }
}

// WithType for what sums are kept in: float32 or float64.
template <class Visit>
__device__ __forceinline__ void WithSumType(DType dtype, const Visit& visit) {
  if (dtype == DType::kFloat64) return visit(double{});
  return visit(float{});
}

template <class T>
__device__ __forceinline__ T* ElementsOf(const RowSide& side, int64_t offset) {
  return static_cast<T*>(side.data) + offset;
}

// Calls visit(number of elements a pack), a constant's type.
template <int count>
struct Count {
  static constexpr int kValue = count;
};
template <class To, class From, class Visit>
__device__ __forceinline__ void WithCount(const RowJob& job,
                                          const Visit& visit) {
  if (job.is_wide) return visit(Count<kWideCount<To, From>>{});
  return visit(Count<1>{});
}

// The row of the list that this warp makes.
__device__ __forceinline__ int64_t WarpNumber() {
  return int64_t{blockIdx.x} * kRowWarps + threadIdx.x / kRowLanes;
}

// Grid (rows / kRowWarps, pairs), also of the next two.
__global__ void __launch_bounds__(kRowLanes* kRowWarps)
    GatherRowsKernel(const __grid_constant__ RowJobs jobs, const CopyRun* runs,
                     int32_t run_count, int32_t rows) {
  const int64_t row = WarpNumber();
  if (row >= rows) return;
  const RowJob& job = jobs.job[blockIdx.y];
  const auto listed = static_cast<int32_t>(row);
  const CopyRun run = runs[FindRun(runs, run_count, listed)];
  const int64_t within = listed - run.begin;
  WithType(job.dst.dtype, [&]<class To>(To) {
    WithType(job.src.dtype, [&]<class From>(From) {
      To* dst = ElementsOf<To>(job.dst, OffsetOf(job.dst, run.dst + within, 0));
      const From* src =
          ElementsOf<From>(job.src, OffsetOf(job.src, run.src + within, 0));
      WithCount<To, From>(job, [&]<class N>(N) {
        MakeRow<kRowBatch, To, N::kValue>(
            job, dst, [&](const PackPlace& place) {
              const auto loaded = LoadPack<N::kValue>(src + place.src);
              Pack<To, N::kValue> made;
              SKRULL_UNROLL
              for (int i = 0; i < N::kValue; ++i) {
                made.at[i] = Convert<To>(loaded.at[i]);
              }
              return made;
            });
      });
    });
  });
}

// dst has float32 or float64.
__global__ void __launch_bounds__(kRowLanes* kRowWarps)
    AddRowsKernel(const __grid_constant__ RowJobs jobs, const CopyRun* runs,
                  int32_t run_count, int32_t rows) {
  const int64_t row = WarpNumber();
  if (row >= rows) return;
  const RowJob& job = jobs.job[blockIdx.y];
  const auto listed = static_cast<int32_t>(row);
  const CopyRun run = runs[FindRun(runs, run_count, listed)];
  const int64_t within = listed - run.begin;
  WithSumType(job.dst.dtype, [&]<class Sum>(Sum) {
    WithType(job.src.dtype, [&]<class From>(From) {
      Sum* dst =
          ElementsOf<Sum>(job.dst, OffsetOf(job.dst, run.dst + within, 0));
      const From* src =
          ElementsOf<From>(job.src, OffsetOf(job.src, run.src + within, 0));
      WithCount<Sum, From>(job, [&]<class N>(N) {
        MakeRow<kRowBatch, Sum, N::kValue>(
            job, dst, [&](const PackPlace& place) {
              auto made = LoadPack<N::kValue>(dst + place.dst);
              const auto loaded = LoadPack<N::kValue>(src + place.src);
              SKRULL_UNROLL
              for (int i = 0; i < N::kValue; ++i) {
                made.at[i] += Convert<Sum>(loaded.at[i]);
              }
              return made;
            });
      });
    });
  });
}

// The pack of a folded row: of one addend, of two, or zeros. REQUIRES: only if
// `first` is null, `second` is, too.
template <int count, class To, class From>
__device__ __forceinline__ Pack<To, count> FoldPack(const From* first,
                                                    const From* second,
                                                    int64_t offset) {
  using Sum = AccumulatorType<From>;
  Sum sums[count] = {};
  if (first != nullptr) {
    const auto loaded = LoadPack<count>(first + offset);
    SKRULL_UNROLL
    for (int i = 0; i < count; ++i) sums[i] = Convert<Sum>(loaded.at[i]);
  }
  if (second != nullptr) {
    const auto loaded = LoadPack<count>(second + offset);
    SKRULL_UNROLL
    for (int i = 0; i < count; ++i) sums[i] += Convert<Sum>(loaded.at[i]);
  }
  Pack<To, count> made;
  SKRULL_UNROLL
  for (int i = 0; i < count; ++i) made.at[i] = Convert<To>(sums[i]);
  return made;
}

__global__ void __launch_bounds__(kRowLanes* kRowWarps)
    FoldRowsKernel(const __grid_constant__ RowJobs jobs, const FoldRun* runs,
                   int32_t run_count, int32_t rows) {
  const int64_t row = WarpNumber();
  if (row >= rows) return;
  const RowJob& job = jobs.job[blockIdx.y];
  const FoldRun run = runs[FindRun(runs, run_count, static_cast<int32_t>(row))];
  const int64_t within = row - run.dst;
  const bool has_first = run.first >= 0;
  const int32_t first_row = has_first ? run.first : run.second;
  const int32_t second_row = has_first ? run.second : -1;
  WithType(job.dst.dtype, [&]<class To>(To) {
    WithType(job.src.dtype, [&]<class From>(From) {
      const auto row_from = [&](int32_t from) -> const From* {
        if (from < 0) return nullptr;
        return ElementsOf<From>(job.src, OffsetOf(job.src, from + within, 0));
      };
      const From* first = row_from(first_row);
      const From* second = row_from(second_row);
      To* dst = ElementsOf<To>(job.dst, OffsetOf(job.dst, row, 0));
      WithCount<To, From>(job, [&]<class N>(N) {
        MakeRow<kRowBatch, To, N::kValue>(
            job, dst, [&](const PackPlace& place) {
              return FoldPack<N::kValue, To>(first, second, place.src);
            });
      });
    });
  });
}

// A warp merges one head of one row, which is a pack a lane or two. Grid (rows
// * heads / kRowWarps).
__global__ void __launch_bounds__(kRowLanes* kRowWarps)
    MergeAttentionKernel(const __grid_constant__ MergeJob job,
                         const CopyRun* runs, int32_t run_count, int32_t rows) {
  const int64_t number = WarpNumber();
  if (number >= int64_t{rows} * job.heads) return;
  const auto listed = static_cast<int32_t>(number / job.heads);
  const int64_t head = number % job.heads;
  const CopyRun run = runs[FindRun(runs, run_count, listed)];
  const int64_t dst_row = run.dst + int64_t{listed - run.begin};
  const int64_t src_row = run.src + int64_t{listed - run.begin};
  WithSumType(job.o.dst.dtype, [&]<class Sum>(Sum) {
    WithType(job.o.src.dtype, [&]<class From>(From) {
      constexpr Sum kNoKeys = -std::numeric_limits<Sum>::infinity();
      Sum* lse = ElementsOf<Sum>(job.lse, OffsetOf(job.lse, dst_row, head));
      const Sum old = *lse;
      const Sum part = *ElementsOf<const Sum>(
          job.lse_part, OffsetOf(job.lse_part, src_row, head));
      if (part == kNoKeys) return;  // the whole warp does
      const Sum most = old < part ? part : old;
      const Sum merged =
          most + std::log(std::exp(old - most) + std::exp(part - most));
      const Sum keep = std::exp(old - merged);
      const Sum take = std::exp(part - merged);
      Sum* o = ElementsOf<Sum>(job.o.dst, OffsetOf(job.o.dst, dst_row, head));
      const From* o_part =
          ElementsOf<From>(job.o.src, OffsetOf(job.o.src, src_row, head));
      WithCount<Sum, From>(job.o, [&]<class N>(N) {
        MakeRow<1, Sum, N::kValue>(job.o, o, [&](const PackPlace& place) {
          auto made = LoadPack<N::kValue>(o + place.dst);
          const auto loaded = LoadPack<N::kValue>(o_part + place.src);
          SKRULL_UNROLL
          for (int i = 0; i < N::kValue; ++i) {
            const Sum kept = old == kNoKeys ? Sum{0} : made.at[i] * keep;
            made.at[i] = kept + Convert<Sum>(loaded.at[i]) * take;
          }
          return made;
        });
      });
      __syncwarp();  // all lanes have read the old value
      if (threadIdx.x % kRowLanes == 0) *lse = merged;
    });
  });
}

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_KERNELS_ROW_KERNELS_CUH_
