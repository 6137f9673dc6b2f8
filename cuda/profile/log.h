// Reported micro-batches as text: JSON Lines, an object for each rank's share
// of a micro-batch. docs/profile.md describes the format for trainers.
//
//   {"step":12,"rank":3,"micro_batch":0,"compute_seconds":0.41,
//    "exchange_seconds":0.02,"peak_bytes":61203283968,
//    "segments":[{"tokens":4096},{"tokens":32768,"degree":8}]}
#ifndef SKRULL_CUDA_PROFILE_LOG_H_
#define SKRULL_CUDA_PROFILE_LOG_H_

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/cuda/profile/calibrate.h"
#include "skrull/cuda/status.h"

namespace skrull::profile {

// Which micro-batch of a run, and what was measured of it. The label of
// `measured` is made when it is read.
struct LogRecord {
  int64_t step = 0;         // >= 0
  int32_t rank = 0;         // >= 0
  int32_t micro_batch = 0;  // >= 0
  MeasuredMicroBatch measured = {};
};

// One line, without its end. REQUIRES: values are in range.
std::string ToLine(const LogRecord& record);

// Reads one object. Keys that it does not know are ignored. Errors:
// INVALID_ARGUMENT naming the key that is missing, of another type or out of
// range, or saying why the line is no JSON object.
exec::Result<LogRecord> ParseLine(std::string_view line);

// The most bytes of a line: 65,536 segments, which is more than an attention
// kernel takes, in 64 bytes each.
inline constexpr size_t kMaxLineBytes = size_t{1} << 22;

// Reads all lines; blank ones are skipped. Errors: those of ParseLine with
// `name` and the number of the line; INVALID_ARGUMENT for a line above
// kMaxLineBytes or a log without records. Holds all records in memory.
exec::Result<std::vector<LogRecord>> ReadLog(const std::string& name,
                                             std::istream* in);

}  // namespace skrull::profile

#endif  // SKRULL_CUDA_PROFILE_LOG_H_
