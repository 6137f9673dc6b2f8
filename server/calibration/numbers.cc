#include "skrull/server/calibration/numbers.h"

#include <algorithm>
#include <utility>

#include "skrull/server/calibration/apply.h"
#include "skrull/server/calibration/limits.h"
#include "skrull/server/convert.h"

namespace skrull::calibration {

absl::StatusOr<Epoch> MakeEpoch(const v1::JobSpec& spec,
                                const v1::Calibration& record) {
  absl::StatusOr<Job> job = JobFromProto(ApplyCalibration(spec, record));
  if (!job.ok()) return job.status();
  return Epoch{.record = record, .job = *std::move(job)};
}

int64_t BucketFloor(int64_t bucket_size) {
  return (bucket_size + kBucketFloorShare - 1) / kBucketFloorShare;
}

double FittedByteLimit(const MemorySpec& memory) {
  return static_cast<double>(*memory.device_bytes) *
         (1 - std::max(memory.reserve_fraction, kMemoryMargin));
}

}  // namespace skrull::calibration
