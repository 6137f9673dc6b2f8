#include "skrull/cuda/cpu/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "skrull/cuda/cpu/host_types.h"

namespace skrull::exec {
namespace {

template <class T>
T* At(const Tensor& tensor, int64_t row, int32_t head) {
  return static_cast<T*>(tensor.data) + row * tensor.row_stride +
         head * tensor.head_stride;
}

// Calls visit(dst type, src type).
template <class Visit>
void WithTypes(const RowPair& pair, const Visit& visit) {
  WithHostType(pair.dst.dtype, [&](auto dst) {
    WithHostType(pair.src.dtype, [&](auto src) { visit(dst, src); });
  });
}

bool HeadsAreDense(const Tensor& tensor) {
  return tensor.head_stride == tensor.dim || tensor.heads == 1;
}

// Same type, and each row in one piece: plain copies.
bool CopiesBytes(const RowPair& pair) {
  return pair.dst.dtype == pair.src.dtype && HeadsAreDense(pair.dst) &&
         HeadsAreDense(pair.src);
}

void CopyBytes(const RowPair& pair, std::span<const CopyRun> runs) {
  const int64_t size = SizeOf(pair.dst.dtype);
  const auto bytes =
      static_cast<size_t>(int64_t{pair.dst.heads} * pair.dst.dim * size);
  const int64_t dst_step = pair.dst.row_stride * size;
  const int64_t src_step = pair.src.row_stride * size;
  for (const CopyRun& run : runs) {
    char* dst = static_cast<char*>(pair.dst.data) + run.dst * dst_step;
    const char* src = static_cast<char*>(pair.src.data) + run.src * src_step;
    for (int32_t i = 0; i < run.count; ++i) {
      std::memcpy(dst, src, bytes);
      dst += dst_step;
      src += src_step;
    }
  }
}

}  // namespace

void GatherRowsOnHost(const RowPair& pair, std::span<const CopyRun> runs) {
  if (CopiesBytes(pair)) return CopyBytes(pair, runs);
  WithTypes(pair, [&]<class To, class From>(To, From) {
    for (const CopyRun& run : runs) {
      for (int32_t i = 0; i < run.count; ++i) {
        for (int32_t h = 0; h < pair.dst.heads; ++h) {
          To* dst = At<To>(pair.dst, run.dst + i, h);
          const From* src = At<From>(pair.src, run.src + i, h);
          for (int32_t c = 0; c < pair.dst.dim; ++c) {
            dst[c] = ConvertHost<To>(src[c]);
          }
        }
      }
    }
  });
}

void AddRowsOnHost(const RowPair& pair, std::span<const CopyRun> runs) {
  WithTypes(pair, [&]<class To, class From>(To, From) {
    using Sum = AccumulatorType<To>;
    for (const CopyRun& run : runs) {
      for (int32_t i = 0; i < run.count; ++i) {
        for (int32_t h = 0; h < pair.dst.heads; ++h) {
          To* dst = At<To>(pair.dst, run.dst + i, h);
          const From* src = At<From>(pair.src, run.src + i, h);
          for (int32_t c = 0; c < pair.dst.dim; ++c) {
            dst[c] = ConvertHost<To>(ConvertHost<Sum>(dst[c]) +
                                     ConvertHost<Sum>(src[c]));
          }
        }
      }
    }
  });
}

void FoldRowsOnHost(const RowPair& pair, std::span<const FoldRun> runs) {
  WithTypes(pair, [&]<class To, class From>(To, From) {
    using Sum = AccumulatorType<From>;
    for (const FoldRun& run : runs) {
      for (int32_t i = 0; i < run.count; ++i) {
        for (int32_t h = 0; h < pair.dst.heads; ++h) {
          To* dst = At<To>(pair.dst, run.dst + i, h);
          std::fill_n(dst, pair.dst.dim, ConvertHost<To>(Sum{0}));
          const From* first =
              run.first < 0 ? nullptr : At<From>(pair.src, run.first + i, h);
          const From* second =
              run.second < 0 ? nullptr : At<From>(pair.src, run.second + i, h);
          if (first == nullptr) std::swap(first, second);
          if (first == nullptr) continue;
          for (int32_t c = 0; c < pair.dst.dim; ++c) {
            Sum sum = ConvertHost<Sum>(first[c]);
            if (second != nullptr) sum += ConvertHost<Sum>(second[c]);
            dst[c] = ConvertHost<To>(sum);
          }
        }
      }
    }
  });
}

void MergeAttentionOnHost(const MergeRows& rows,
                          std::span<const CopyRun> runs) {
  WithTypes({rows.o, rows.o_part}, [&]<class Sum, class From>(Sum, From) {
    if constexpr (std::is_floating_point_v<Sum>) {
      constexpr Sum kNoKeys = -std::numeric_limits<Sum>::infinity();
      for (const CopyRun& run : runs) {
        for (int32_t i = 0; i < run.count; ++i) {
          for (int32_t h = 0; h < rows.o.heads; ++h) {
            Sum* lse = At<Sum>(rows.lse, run.dst + i, h);
            const Sum part = *At<Sum>(rows.lse_part, run.src + i, h);
            if (part == kNoKeys) continue;
            const Sum most = std::max(*lse, part);
            const Sum merged =
                most + std::log(std::exp(*lse - most) + std::exp(part - most));
            const Sum keep = std::exp(*lse - merged);
            const Sum take = std::exp(part - merged);
            Sum* o = At<Sum>(rows.o, run.dst + i, h);
            const From* o_part = At<From>(rows.o_part, run.src + i, h);
            for (int32_t c = 0; c < rows.o.dim; ++c) {
              const Sum old = *lse == kNoKeys ? Sum{0} : o[c] * keep;
              o[c] = old + ConvertHost<Sum>(o_part[c]) * take;
            }
            *lse = merged;
          }
        }
      }
    }
  });
}

}  // namespace skrull::exec
