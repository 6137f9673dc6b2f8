// Batches of skrull_client.h, read.
#ifndef SKRULL_CLIENT_C_API_BATCH_H_
#define SKRULL_CLIENT_C_API_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/skrull_client.h"

namespace skrull::client_c {

// Errors: those of ReadStruct; INVALID_ARGUMENT for lengths that cannot be
// there. Values are left to the planner to check.
inline absl::Status ReadBatch(const skrull_client_batch* given,
                              skrull_client_batch* batch) {
  SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(given, "batch", batch));
  SKRULL_CLIENT_C_RETURN_IF_ERROR(CheckZero("batch.reserved", batch->reserved));
  if (batch->length_count < 0) {
    return InvalidField("length_count", absl::StrCat("must be at least 0, is ",
                                                     batch->length_count));
  }
  return batch->length_count == 0 ? absl::OkStatus()
                                  : NotNull(batch->lengths, "lengths");
}

// REQUIRES: ReadBatch took it.
inline std::vector<int64_t> LengthsOf(const skrull_client_batch& batch) {
  return std::vector<int64_t>(batch.lengths,
                              batch.lengths + batch.length_count);
}

}  // namespace skrull::client_c

#endif  // SKRULL_CLIENT_C_API_BATCH_H_
