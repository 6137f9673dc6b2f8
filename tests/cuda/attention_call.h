// Calls of attention backends in tests: random segments with what each of them
// must give, and a run of both passes on a stream.
#ifndef SKRULL_TESTS_CUDA_ATTENTION_CALL_H_
#define SKRULL_TESTS_CUDA_ATTENTION_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/tests/cuda/dense_attention.h"
#include "skrull/tests/cuda/host_tensor.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

struct Lengths {
  int32_t q, kv;
};

// One call over random segments, and what each of them must give. The outputs
// are NaN at first. Neither moves nor copies: segments point to cu_q and cu_kv.
struct Call {
  AttentionProblem problem;
  std::vector<int32_t> cu_q = {0}, cu_kv = {0};
  Segments segments;
  HostTensor q, k, v, d_o, o, lse, dq, dk, dv;
  std::vector<SequenceData> data;
  std::vector<DenseResult> want;
};

// `gap`: elements between heads and after each row. Equal seeds give equal
// data.
std::unique_ptr<Call> MakeCall(const AttentionProblem& p, Mask mask,
                               const std::vector<Lengths>& lengths, int32_t gap,
                               uint64_t seed);

// Writes rows from `row` on.
void Put(const Dense& from, int64_t row, HostTensor* to);

// The calls of both passes; `o` and `lse` of the backward pass are those of
// the forward pass.
AttentionForward ForwardOf(const Call& call);
AttentionBackward BackwardOf(const Call& call);

// Both passes on a CpuDevice. Fails the test case if they fail.
void Run(const Call& call, AttentionBackend* backend);

// Largest difference to the reference relative to its largest value or 1, and
// the same in the Euclidean norm. Fails the test case if a value is not finite.
struct Miss {
  double most = 0;
  double norm = 0;
};
Miss Compare(const HostTensor& got, const std::vector<int32_t>& cu,
             const std::vector<DenseResult>& want, Dense DenseResult::* member);

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_ATTENTION_CALL_H_
