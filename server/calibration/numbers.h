// The numbers of a job that calibration may change, as they are in force.
#ifndef SKRULL_SERVER_CALIBRATION_NUMBERS_H_
#define SKRULL_SERVER_CALIBRATION_NUMBERS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"
#include "skrull/v1/calibration.pb.h"
#include "skrull/v1/job.pb.h"

namespace skrull::calibration {

// A job in one of its epochs. Immutable; copyable.
struct Epoch {
  v1::Calibration record;
  Job job;  // of the spec with the record's numbers

  double link_scale() const {
    return record.has_link_scale() ? record.link_scale() : 1;
  }
  // What peaks of memory can be held against: device_bytes and bytes_per_token
  // are both known.
  bool models_memory() const {
    return job.spec().memory.device_bytes && job.bytes_per_token() > 0;
  }
};

// The epoch of a record. Errors: those of JobFromProto, where the numbers make
// the spec invalid.
absl::StatusOr<Epoch> MakeEpoch(const v1::JobSpec& spec,
                                const v1::Calibration& record);

// Smallest bucket that calibration gives a job whose spec has `bucket_size`
// tokens, >= 1.
int64_t BucketFloor(int64_t bucket_size);

// Bytes that ranks may use by what calibration fits. REQUIRES: device_bytes is
// set.
double FittedByteLimit(const MemorySpec& memory);

}  // namespace skrull::calibration

#endif  // SKRULL_SERVER_CALIBRATION_NUMBERS_H_
