// The bytes of a Plan, given to the checker and to what reads a rank's share.
// Seeds: corpus/plan, in text form.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "skrull/planner/plan.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/server/convert.h"
#include "skrull/v1/plan.pb.h"

namespace {

skrull::Job MakeJob() {
  skrull::JobSpec spec;
  spec.model.hidden_size = 64;
  spec.model.layer_count = 2;
  spec.model.attention_head_count = 4;
  spec.parallelism.dp_size = 2;
  spec.parallelism.cp_size = 4;
  spec.memory.bucket_size_tokens = 10;
  auto job = skrull::Job::Create(spec);
  if (!job.ok()) std::abort();
  return *job;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const skrull::Job* const job = new skrull::Job(MakeJob());
  static const std::vector<int64_t> lengths = {3, 7, 5, 31, 2, 9};
  skrull::v1::Plan wire;
  if (!wire.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto plan = skrull::PlanFromProto(wire);
  if (!plan.ok()) return 0;
  if (!skrull::CheckPlan(*job, lengths, *plan).ok()) return 0;
  // A legal plan: the shares of all ranks hold each token once.
  int64_t tokens = 0;
  for (int32_t rank = 0; rank < job->pool().ranks(); ++rank) {
    const auto share = skrull::MakeRankPlan(*plan, wire.digest(), rank);
    for (const auto& micro_batch : share.micro_batches) {
      tokens += micro_batch.row_count;
    }
    if (!share.chunk_plan) continue;
    for (const auto& chunk : share.chunk_plan->chunks) {
      tokens += chunk.row_count;
    }
  }
  int64_t all = 0;
  for (const int64_t length : lengths) all += length;
  if (tokens != all) std::abort();
  return 0;
}
