// Attention of some segments, computed by any backend on any device from the
// same numbers.
#ifndef SKRULL_CUDA_CHECK_ATTENTION_SAMPLE_H_
#define SKRULL_CUDA_CHECK_ATTENTION_SAMPLE_H_

#include <cstdint>

#include "skrull/cuda/attention_backend.h"
#include "skrull/cuda/check/rows.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/status.h"

namespace skrull::check {

// q and d_o [query rows, q_heads * head_dim]; k, v [key rows, kv_heads *
// head_dim].
struct AttentionInputs {
  Rows q, k, v, d_o;
};
// o and dq as q, dk and dv as k; lse [query rows, q_heads].
struct AttentionOutputs {
  Rows o, lse, dq, dk, dv;
};

// Numbers of problem.dtype.
AttentionInputs RandomInputs(uint64_t seed,
                             const exec::AttentionProblem& problem,
                             int64_t query_rows, int64_t key_rows);

// What lies behind the rows of q and d_o.
enum class QueryTail { kFinite, kNan };

// Forward and backward, on a stream of its own. Outputs are poisoned before,
// and NaN lies behind k and v and the rows there that the backend may read.
// Errors: those of backend and device.
exec::Result<AttentionOutputs> RunAttention(
    exec::Device* device, exec::AttentionBackend* backend,
    const exec::AttentionProblem& problem, exec::SegmentList list,
    const AttentionInputs& inputs, QueryTail tail = QueryTail::kFinite);

// The same in float64 by the cpu backend, whatever problem.dtype is.
exec::Result<AttentionOutputs> RunReference(
    const exec::AttentionProblem& problem, const exec::SegmentList& list,
    const AttentionInputs& inputs);

// How far from a reference: relative errors, of o and of the gradients' worst;
// of lse the largest difference.
struct AttentionError {
  double o = 0;
  double gradients = 0;
  double lse = 0;

  bool within(const AttentionError& limit) const {
    return o <= limit.o && gradients <= limit.gradients && lse <= limit.lse;
  }
};
AttentionError Compare(const AttentionOutputs& outputs,
                       const AttentionOutputs& reference);

// Are all numbers of both the same bits?
bool SameBits(const AttentionOutputs& a, const AttentionOutputs& b);

// Limits against float64 for inputs that are rounded to `dtype`, each rounded
// up: outputs are off by half a unit in the last place (bfloat16 2^-9, float16
// 2^-12), and by as much for probabilities that are kept in the same type;
// gradients have two more such operands. Sums of float32 lose about a hundred
// units of 2^-24 over a thousand terms, and those of float64 of 2^-53.
AttentionError LimitOf(exec::DType dtype);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_ATTENTION_SAMPLE_H_
