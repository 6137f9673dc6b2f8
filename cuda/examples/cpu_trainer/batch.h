// Global batches of the example: real lengths, scaled down, and tokens that a
// small model can learn to predict.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_BATCH_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/cuda/examples/cpu_trainer/model.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::examples {

// What every rank knows of a global batch.
struct Batch {
  std::vector<std::vector<int32_t>> tokens;  // of each sequence
  // The first position of each sequence whose next token is trained on.
  std::vector<int32_t> first_label;
  int64_t label_count = 0;

  std::vector<int64_t> lengths() const;
};

// The same for the same arguments: ranks need not send each other tokens. All
// but the last token of a sequence have a label.
Batch MakeBatch(const std::vector<int64_t>& lengths, int64_t step,
                int32_t vocab_size);

// The rank's rows of a micro-batch. REQUIRES: the plan is one of the batch.
MicroBatchRows RowsOf(const Batch& batch, const RankMicroBatch& micro_batch);

// One integer a line; `#` comments and blank lines are skipped. Each is divided
// by `scale` and rounded up, at least 2. Errors: NOT_FOUND, INVALID_ARGUMENT
// with the line.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const std::string& path,
                                                 int64_t scale);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_BATCH_H_
