// One rank of the example: executes its share of plans, sums gradients over the
// pool, and updates its copy of the weights.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_TRAINER_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_TRAINER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/cuda/examples/cpu_trainer/batch.h"
#include "skrull/cuda/examples/cpu_trainer/meter.h"
#include "skrull/cuda/examples/cpu_trainer/model.h"
#include "skrull/cuda/executor.h"
#include "skrull/planner/rank_plan.h"

namespace skrull::examples {

struct TrainerOptions {
  ModelConfig model;
  uint32_t seed = 1;  // of the weights
  double learning_rate = 0.2;
  exec::Exchange exchange = exec::Exchange::kAllGather;
};

// How a rank reaches the others; both outlive the trainer.
struct RankLinks {
  exec::CommunicatorSet* communicators = nullptr;
  exec::StepAgreement* agreement = nullptr;
};

struct StepResult {
  double loss = 0;  // mean over the labels of the whole batch
  std::vector<RankSeconds> micro_batches;  // this rank's
};

// Not thread-safe. Owns its weights, its device and its streams.
class RankTrainer {
 public:
  static exec::Result<std::unique_ptr<RankTrainer>> Create(
      const TrainerOptions& options, const RankLinks& links);
  // Waits for the other ranks' last exchanges unless something failed.
  ~RankTrainer();

  // One optimizer step. Collective: every rank calls it for the same batch with
  // its share of one plan, or of "no plan" (an empty digest), which all ranks
  // then refuse. Errors: FAILED_PRECONDITION if the plans differ, and the next
  // step may go on; any other one ends the training of all ranks.
  exec::Result<StepResult> Step(const RankPlan& plan, const Batch& batch);

  // Makes the other ranks fail.
  void Abort(const exec::Status& cause);

  // Of the last step, summed over the ranks; the same on all of them.
  const Parameters& gradients() const;
  const Parameters& weights() const;

 private:
  class Impl;
  explicit RankTrainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_TRAINER_H_
