// The ranks of a pool as threads of this process.
#ifndef SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_THREADS_H_
#define SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_THREADS_H_

#include <cstdint>
#include <functional>

#include "skrull/cuda/examples/cpu_trainer/rank_trainer.h"
#include "skrull/cuda/status.h"

namespace skrull::examples {

// Calls body(rank, links) for each rank of a new in-process pool, each on a
// thread of its own; a body that fails ends the others. Returns the first
// failure, of those that are not the echo of another rank's if there is one.
exec::Status RunRanks(
    int32_t ranks,
    const std::function<exec::Status(int32_t rank, const RankLinks& links)>&
        body);

}  // namespace skrull::examples

#endif  // SKRULL_CUDA_EXAMPLES_CPU_TRAINER_RANK_THREADS_H_
