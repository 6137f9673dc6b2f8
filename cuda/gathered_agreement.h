// A StepAgreement over an all-gather of 32 bytes a rank: the digests of the
// plans that the ranks hold, compared on each of them.
//
// For pools without an agreement of their own. A trainer's own all-gather (over
// its process group) does, or that of a communicator of the whole pool.
#ifndef SKRULL_CUDA_GATHERED_AGREEMENT_H_
#define SKRULL_CUDA_GATHERED_AGREEMENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "skrull/cuda/communicator.h"
#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/planner/plan_digest.h"

namespace skrull::exec {

// Contributes `mine` and fills `all`, one entry a rank, in rank order. Blocks
// until all ranks called it, or a deadline of its own.
using DigestAllGather =
    std::function<Status(const DigestBytes& mine, std::span<DigestBytes> all)>;

// OK if all are the same. Errors: FAILED_PRECONDITION naming the ranks that
// differ from the most common digest (from the lowest rank's of those equally
// common); a function of `all` alone, so the same on every rank. REQUIRES: all
// is not empty.
Status CompareDigests(std::span<const DigestBytes> all);

// Thread-safe as its all-gather is.
class GatheredAgreement final : public StepAgreement {
 public:
  // REQUIRES: ranks >= 1.
  GatheredAgreement(int32_t ranks, DigestAllGather all_gather)
      : ranks_(ranks), all_gather_(std::move(all_gather)) {}

  // Calls the all-gather exactly once, whatever the digest. "" stands for no
  // plan, and so does what is no digest: a rank that stayed away would leave
  // the others waiting. Errors: those of CompareDigests and of the all-gather;
  // INVALID_ARGUMENT if no rank has a digest.
  Status Agree(std::string_view digest) override;

 private:
  const int32_t ranks_;
  const DigestAllGather all_gather_;
};

// The all-gather of the communicator of the whole pool, which its first call
// announces, on a stream of its own. The function gives up after `time_limit`
// with DEADLINE_EXCEEDED, and then aborts the communicators. `device` and
// `communicators` outlive it; copies share the stream, and one thread at a time
// calls any of them. Errors: INVALID_ARGUMENT if the device's memory is not the
// host's; those of the device.
Result<DigestAllGather> AllGatherOverPool(Device* device,
                                          CommunicatorSet* communicators,
                                          std::chrono::nanoseconds time_limit);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_GATHERED_AGREEMENT_H_
