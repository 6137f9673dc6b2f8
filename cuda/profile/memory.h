// Bytes that a rank holds for a token, counted from the model's sizes: no
// trainer runs here whose memory could be measured (FitMemory in calibrate.h
// does that from a log).
#ifndef SKRULL_CUDA_PROFILE_MEMORY_H_
#define SKRULL_CUDA_PROFILE_MEMORY_H_

#include "skrull/cuda/profile/cost.h"
#include "skrull/cuda/tensor.h"

namespace skrull::profile {

// Activations of a decoder with grouped-query attention and a gated MLP, for
// each row, with b = SizeOf(dtype) and a = SizeOf(AccumulatorOf(dtype)).
//   kept of a layer  b (4 hidden + 2 q + 2 kv + 3 intermediate) + a heads:
//                    its input, both norms' outputs and the sum between them;
//                    q and o; k and v; gate, up and their product; the
//                    log-sum-exp
//   at work          b (2 hidden + 2 q + 2 kv + 3 intermediate), the gradients
//                    of one layer's q, o, k, v and MLP and of its input and
//                    output
//   all              layers * kept + at work; a trainer that recomputes keeps
//                    b hidden of each layer and all of the one at work
// Logits are left out: a trainer computes them for some rows at a time.
double ActivationBytesPerToken(const ModelShape& model, exec::DType dtype,
                               bool recomputes);

// K and V that a rank holds in the executor's all-gather exchange for each
// token of its blocks' sequences, one layer at a time: (3 + 2 / g) K and V in a
// block of g ranks (the slot, the gathered slots, and the keys of two prefixes
// with their gradients, each 1 + 1 / 2g), which is 4 at most. Buffers grow by
// steps, which is not counted.
double GatherBytesPerToken(const ModelShape& model, exec::DType dtype);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_MEMORY_H_
