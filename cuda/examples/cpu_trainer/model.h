// A small decoder: embedding and sinusoidal positions; layers of normalised
// grouped-query attention and a gated MLP; a head over the vocabulary. Forward
// and backward by hand, in float32, for one rank's rows of one micro-batch. The
// rows of a sequence may lie on several ranks and in zigzag order: only
// attention has to know, through AttentionCalls.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MODEL_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MODEL_H_

#include <cstdint>
#include <vector>

#include "skrull/cuda/examples/cpu_trainer/matrix.h"
#include "skrull/cuda/executor.h"
#include "skrull/cuda/status.h"

namespace skrull::examples {

// All >= 1; q_heads is a multiple of kv_heads. The names are JobSpec's.
struct ModelConfig {
  int32_t layer_count = 2;
  int32_t hidden_size = 64;
  int32_t q_heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
  int32_t intermediate_size = 128;
  int32_t vocab_size = 128;

  int64_t q_size() const { return int64_t{q_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{kv_heads} * head_dim; }
};

// The weights of one layer, [in, out] each.
struct LayerWeights {
  float *q, *k, *v, *o, *gate, *up, *down;
};

// All weights, or all their gradients, one after another.
class Parameters {
 public:
  explicit Parameters(const ModelConfig& config);  // all zero

  // The same numbers on every rank.
  void Initialize(uint32_t seed);

  float* embedding() { return values_.data(); }     // [vocab, hidden]
  float* head() { return values_.data() + head_; }  // [hidden, vocab]
  LayerWeights layer(int32_t index);

  Floats& values() { return values_; }
  const Floats& values() const { return values_; }

 private:
  ModelConfig config_;
  int64_t head_ = 0;
  int64_t first_layer_ = 0;
  int64_t layer_size_ = 0;
  Floats values_;
};

// A rank's rows of a micro-batch.
struct MicroBatchRows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> labels;  // what comes next; -1: not trained on
};

// The attention of one micro-batch. Every rank calls the same, rows or not.
class AttentionCalls {
 public:
  virtual ~AttentionCalls() = default;
  // Return when the results are there.
  virtual exec::Status Forward(const exec::ForwardTensors& tensors) = 0;
  virtual exec::Status Backward(const exec::BackwardTensors& tensors) = 0;
};

// Forward and backward. Adds `loss_scale` times the gradient of the summed loss
// to `gradients`, and the summed loss to `loss`. Errors: those of `attention`.
exec::Status RunMicroBatch(const ModelConfig& config, Parameters* weights,
                           const MicroBatchRows& rows, double loss_scale,
                           AttentionCalls* attention, Parameters* gradients,
                           double* loss);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_MODEL_H_
