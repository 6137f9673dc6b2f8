// The bytes of a PlanBatchRequest that carries its job. Seeds:
// corpus/plan_request, in text form.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/tests/fuzz/plan_and_check.h"
#include "skrull/v1/planner_service.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skrull::v1::PlanBatchRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  (void)skrull::ValidateJobName(request.job(), "job");
  (void)skrull::PolicyFromProto(request.policy(), "policy");
  const auto job = skrull::JobFromProto(request.job_spec());
  if (!job.ok()) return 0;
  const std::vector<int64_t> lengths(request.lengths().begin(),
                                     request.lengths().end());
  skrull::fuzz::PlanAndCheck(*job, lengths);
  return 0;
}
