// Results of one sequence, collected from ranks and compared with the oracle.
#ifndef SKRULL_TESTS_CUDA_COLLECTED_SEQUENCE_H_
#define SKRULL_TESTS_CUDA_COLLECTED_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/attention_backend.h"
#include "skrull/tests/cuda/dense_attention.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {

class CollectedSequence {
 public:
  CollectedSequence(const AttentionProblem& problem, int64_t tokens);

  // That row of a rank is the token at `position`.
  void Take(const RankTensors& tensors, int64_t row, int64_t position);

  // Widens `errors` by those against dense attention of `data`; infinite unless
  // each token was taken once.
  void Compare(const SequenceData& data, const AttentionProblem& problem,
               Errors* errors) const;

 private:
  DenseResult values_;
  std::vector<int32_t> seen_;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_COLLECTED_SEQUENCE_H_
