#include "skrull/cuda/cpu/blocked_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/cpu/tile_math.h"

namespace skrull::exec {
namespace {

constexpr int64_t kTile = 64;  // queries, or keys

// One tile of rows of one head of one segment.
struct TileTask {
  int32_t segment = 0;
  int32_t head = 0;
  int32_t begin = 0;  // first row, within the segment
};

// The tiles of all segments, cut along queries or along keys, for each head.
std::vector<TileTask> Tiles(const int32_t* cu_seqlens, int32_t segments,
                            int32_t heads) {
  std::vector<TileTask> tasks;
  for (int32_t s = 0; s < segments; ++s) {
    const int32_t rows = cu_seqlens[s + 1] - cu_seqlens[s];
    for (int32_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < rows; t += kTile) {
        tasks.push_back({s, h, static_cast<int32_t>(t)});
      }
    }
  }
  return tasks;
}

// The rows of one segment, and which keys a query of it sees.
struct SegmentView {
  int64_t q_first, q_rows, kv_first, kv_rows;
  bool causal;

  SegmentView(const Segments& segments, int32_t s)
      : q_first(segments.cu_q[s]),
        q_rows(segments.cu_q[s + 1] - q_first),
        kv_first(segments.cu_kv[s]),
        kv_rows(segments.cu_kv[s + 1] - kv_first),
        causal(segments.bounds.mask == Mask::kCausalBottomRight) {}

  // Query i sees keys [0, KeysOf(i)).
  int64_t KeysOf(int64_t query) const {
    return causal ? query + 1 + kv_rows - q_rows : kv_rows;
  }
  // Key j is seen by queries [FirstQueryOf(j), q_rows).
  int64_t FirstQueryOf(int64_t key) const {
    return causal ? std::max(int64_t{0}, key - (kv_rows - q_rows)) : 0;
  }
};

// Memory of one thread for the tiles it works on, kept from task to task.
template <class T>
class Scratch {
 public:
  // Room for `count` values, contents undefined, valid until the next Begin.
  static T* Begin(int64_t count) {
    thread_local std::vector<T> memory;
    if (memory.size() < static_cast<size_t>(count)) {
      memory.resize(static_cast<size_t>(count));
    }
    return memory.data();
  }
};

template <class T>
T* LseAt(const Tensor& lse, int64_t row, int32_t head) {
  return static_cast<T*>(lse.data) + row * lse.row_stride +
         head * lse.head_stride;
}

template <class Storage>
void ForwardTask(const AttentionForward& call, const TileTask& task) {
  using T = AccumulatorType<Storage>;
  const SegmentView view(call.segments, task.segment);
  const int64_t dim = call.problem.head_dim;
  const int32_t kv_head =
      task.head / (call.problem.q_heads / call.problem.kv_heads);
  const int64_t m = std::min(kTile, view.q_rows - task.begin);
  T* q = Scratch<T>::Begin(3 * kTile * dim + kTile * kTile + 3 * kTile);
  T* kv = q + kTile * dim;  // K transposed, then V
  T* o = kv + kTile * dim;
  T* p = o + kTile * dim;
  T* most = p + kTile * kTile;  // of the scores so far, per query
  T* sum = most + kTile;        // of e^(score - most)
  tile::Load<T, Storage>(q, dim, call.q, view.q_first + task.begin, m,
                         task.head);
  const T scale = static_cast<T>(call.problem.scale);
  for (int64_t i = 0; i < m * dim; ++i) q[i] *= scale;
  std::fill_n(o, m * dim, T{0});
  std::fill_n(most, m, -std::numeric_limits<T>::infinity());
  std::fill_n(sum, m, T{0});

  const int64_t keys = view.KeysOf(task.begin + m - 1);
  for (int64_t j = 0; j < keys; j += kTile) {
    const int64_t n = std::min(kTile, keys - j);
    tile::LoadTransposed<T, Storage>(kv, kTile, call.k, view.kv_first + j, n,
                                     kv_head);
    tile::MultiplyInto(p, kTile, q, dim, kv, kTile, m, n, dim, false);
    for (int64_t i = 0; i < m; ++i) {
      T* row = p + i * kTile;
      const int64_t seen =
          std::clamp(view.KeysOf(task.begin + i) - j, int64_t{0}, n);
      T top = most[i];
      for (int64_t x = 0; x < seen; ++x) top = std::max(top, row[x]);
      T total = 0;
      for (int64_t x = 0; x < seen; ++x) {
        row[x] = std::exp(row[x] - top);
        total += row[x];
      }
      std::fill(row + seen, row + n, T{0});
      if (seen == 0) continue;
      if (top != most[i]) {
        const T shrink = std::exp(most[i] - top);
        sum[i] *= shrink;
        for (int64_t c = 0; c < dim; ++c) o[i * dim + c] *= shrink;
        most[i] = top;
      }
      sum[i] += total;
    }
    tile::Load<T, Storage>(kv, dim, call.v, view.kv_first + j, n, kv_head);
    tile::MultiplyInto(o, dim, p, kTile, kv, dim, m, dim, n, true);
  }
  tile::Store<T, Storage>(call.o, view.q_first + task.begin, m, task.head, o,
                          dim, [&](int64_t i) { return T{1} / sum[i]; });
  for (int64_t i = 0; i < m; ++i) {
    *LseAt<T>(call.lse, view.q_first + task.begin + i, task.head) =
        most[i] + std::log(sum[i]);
  }
}

// delta[row, head] = sum over dim of dO * O.
template <class Storage>
void DeltaRow(const AttentionBackward& call, int64_t row,
              AccumulatorType<Storage>* delta) {
  using T = AccumulatorType<Storage>;
  const auto at = [&](const Tensor& tensor, int32_t head) {
    return static_cast<const Storage*>(tensor.data) + row * tensor.row_stride +
           head * tensor.head_stride;
  };
  for (int32_t h = 0; h < call.problem.q_heads; ++h) {
    const Storage* o = at(call.o, h);
    const Storage* d_o = at(call.d_o, h);
    T sum = 0;
    for (int32_t c = 0; c < call.problem.head_dim; ++c) {
      sum += ConvertHost<T>(o[c]) * ConvertHost<T>(d_o[c]);
    }
    delta[row * call.problem.q_heads + h] = sum;
  }
}

template <class Storage>
void QueryGradientTask(const AttentionBackward& call, const TileTask& task,
                       const AccumulatorType<Storage>* delta) {
  using T = AccumulatorType<Storage>;
  const SegmentView view(call.segments, task.segment);
  const int64_t dim = call.problem.head_dim;
  const int32_t heads = call.problem.q_heads;
  const int32_t kv_head = task.head / (heads / call.problem.kv_heads);
  const int64_t first = view.q_first + task.begin;
  const int64_t m = std::min(kTile, view.q_rows - task.begin);
  T* q = Scratch<T>::Begin(4 * kTile * dim + 2 * kTile * kTile);
  T* d_o = q + kTile * dim;
  T* dq = d_o + kTile * dim;
  T* kv = dq + kTile * dim;
  T* p = kv + kTile * dim;
  T* dp = p + kTile * kTile;
  tile::Load<T, Storage>(q, dim, call.q, first, m, task.head);
  tile::Load<T, Storage>(d_o, dim, call.d_o, first, m, task.head);
  const T scale = static_cast<T>(call.problem.scale);
  for (int64_t i = 0; i < m * dim; ++i) q[i] *= scale;
  std::fill_n(dq, m * dim, T{0});

  const int64_t keys = view.KeysOf(task.begin + m - 1);
  for (int64_t j = 0; j < keys; j += kTile) {
    const int64_t n = std::min(kTile, keys - j);
    tile::LoadTransposed<T, Storage>(kv, kTile, call.k, view.kv_first + j, n,
                                     kv_head);
    tile::MultiplyInto(p, kTile, q, dim, kv, kTile, m, n, dim, false);
    tile::LoadTransposed<T, Storage>(kv, kTile, call.v, view.kv_first + j, n,
                                     kv_head);
    tile::MultiplyInto(dp, kTile, d_o, dim, kv, kTile, m, n, dim, false);
    for (int64_t i = 0; i < m; ++i) {
      T* row = p + i * kTile;
      const T* drow = dp + i * kTile;
      const int64_t seen =
          std::clamp(view.KeysOf(task.begin + i) - j, int64_t{0}, n);
      const T lse = *LseAt<T>(call.lse, first + i, task.head);
      const T shift = delta[(first + i) * heads + task.head];
      for (int64_t x = 0; x < seen; ++x) {
        row[x] = std::exp(row[x] - lse) * (drow[x] - shift);
      }
      std::fill(row + seen, row + n, T{0});
    }
    tile::Load<T, Storage>(kv, dim, call.k, view.kv_first + j, n, kv_head);
    tile::MultiplyInto(dq, dim, p, kTile, kv, dim, m, dim, n, true);
  }
  tile::Store<T, Storage>(call.dq, first, m, task.head, dq, dim,
                          [&](int64_t) { return scale; });
}

template <class Storage>
void KeyGradientTask(const AttentionBackward& call, const TileTask& task,
                     const AccumulatorType<Storage>* delta) {
  using T = AccumulatorType<Storage>;
  const SegmentView view(call.segments, task.segment);
  const int64_t dim = call.problem.head_dim;
  const int32_t heads = call.problem.q_heads;
  const int32_t group = heads / call.problem.kv_heads;
  const int64_t first = view.kv_first + task.begin;
  const int64_t n = std::min(kTile, view.kv_rows - task.begin);
  T* k = Scratch<T>::Begin(5 * kTile * dim + 2 * kTile * kTile);
  T* v = k + kTile * dim;
  T* dk = v + kTile * dim;
  T* dv = dk + kTile * dim;
  T* qo = dv + kTile * dim;  // Q or dO, as they lie or transposed
  T* p = qo + kTile * dim;   // [keys, queries]
  T* dp = p + kTile * kTile;
  tile::Load<T, Storage>(k, dim, call.k, first, n, task.head);
  tile::Load<T, Storage>(v, dim, call.v, first, n, task.head);
  const T scale = static_cast<T>(call.problem.scale);
  for (int64_t i = 0; i < n * dim; ++i) k[i] *= scale;
  std::fill_n(dk, n * dim, T{0});
  std::fill_n(dv, n * dim, T{0});

  for (int32_t h = task.head * group; h < (task.head + 1) * group; ++h) {
    for (int64_t i = view.FirstQueryOf(task.begin); i < view.q_rows;
         i += kTile) {
      const int64_t m = std::min(kTile, view.q_rows - i);
      const int64_t query = view.q_first + i;
      tile::LoadTransposed<T, Storage>(qo, kTile, call.q, query, m, h);
      tile::MultiplyInto(p, kTile, k, dim, qo, kTile, n, m, dim, false);
      tile::LoadTransposed<T, Storage>(qo, kTile, call.d_o, query, m, h);
      tile::MultiplyInto(dp, kTile, v, dim, qo, kTile, n, m, dim, false);
      for (int64_t x = 0; x < n; ++x) {
        T* row = p + x * kTile;
        T* drow = dp + x * kTile;
        const int64_t blind =
            std::clamp(view.FirstQueryOf(task.begin + x) - i, int64_t{0}, m);
        std::fill(row, row + blind, T{0});
        std::fill(drow, drow + blind, T{0});
        for (int64_t y = blind; y < m; ++y) {
          const T lse = *LseAt<T>(call.lse, query + y, h);
          row[y] = std::exp(row[y] - lse);
          drow[y] = row[y] * (drow[y] - delta[(query + y) * heads + h]);
        }
      }
      tile::Load<T, Storage>(qo, dim, call.d_o, query, m, h);
      tile::MultiplyInto(dv, dim, p, kTile, qo, dim, n, dim, m, true);
      tile::Load<T, Storage>(qo, dim, call.q, query, m, h);
      tile::MultiplyInto(dk, dim, dp, kTile, qo, dim, n, dim, m, true);
    }
  }
  tile::Store<T, Storage>(call.dk, first, n, task.head, dk, dim,
                          [&](int64_t) { return scale; });
  tile::Store<T, Storage>(call.dv, first, n, task.head, dv, dim,
                          [](int64_t) { return T{1}; });
}

}  // namespace

void BlockedForward(const AttentionForward& call, WorkerPool* pool) {
  const std::vector<TileTask> tasks = Tiles(
      call.segments.cu_q, call.segments.bounds.count, call.problem.q_heads);
  WithHostType(call.problem.dtype, [&]<class Storage>(Storage) {
    pool->Run(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
      ForwardTask<Storage>(call, tasks[static_cast<size_t>(i)]);
    });
  });
}

void BlockedBackward(const AttentionBackward& call, void* delta,
                     WorkerPool* pool) {
  const int32_t count = call.segments.bounds.count;
  const std::vector<TileTask> q_tasks =
      Tiles(call.segments.cu_q, count, call.problem.q_heads);
  const std::vector<TileTask> kv_tasks =
      Tiles(call.segments.cu_kv, count, call.problem.kv_heads);
  WithHostType(call.problem.dtype, [&]<class Storage>(Storage) {
    auto* sums = static_cast<AccumulatorType<Storage>*>(delta);
    const int64_t rows = call.segments.bounds.total_q;
    pool->Run((rows + kTile - 1) / kTile, [&](int64_t i) {
      const int64_t end = std::min(rows, (i + 1) * kTile);
      for (int64_t row = i * kTile; row < end; ++row) {
        DeltaRow<Storage>(call, row, sums);
      }
    });
    pool->Run(static_cast<int64_t>(q_tasks.size()), [&](int64_t i) {
      QueryGradientTask<Storage>(call, q_tasks[static_cast<size_t>(i)], sums);
    });
    pool->Run(static_cast<int64_t>(kv_tasks.size()), [&](int64_t i) {
      KeyGradientTask<Storage>(call, kv_tasks[static_cast<size_t>(i)], sums);
    });
  });
}

}  // namespace skrull::exec
