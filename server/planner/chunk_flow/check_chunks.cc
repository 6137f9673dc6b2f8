#include "skrull/planner/chunk_flow/check_chunks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/planner/chunk_flow/chunk_memory.h"
#include "skrull/planner/error.h"
#include "skrull/planner/planner.h"

namespace skrull {
namespace {

// The largest x in [1, most] with which `holds`; 0 if none does. REQUIRES:
// smaller ones hold where larger ones do.
template <typename Holds>
int64_t Largest(int64_t most, const Holds& holds) {
  int64_t good = 0;
  while (good < most) {
    const int64_t middle = good + (most - good + 1) / 2;
    if (holds(middle)) {
      good = middle;
    } else {
      most = middle - 1;
    }
  }
  return good;
}

// Changes to the job, each alone enough to hold a sequence of `tokens` that it
// does not hold.
std::vector<std::string> WhatWouldHold(const Job& job, int64_t tokens) {
  std::vector<std::string> hints;
  const ChunkShape shape = ChooseChunkShape(job, tokens);
  const int64_t retained = Largest(shape.retained - 1, [&](int64_t count) {
    return HoldsSequence(job, {shape.chunk_size, count}, tokens);
  });
  if (retained > 0) {
    hints.push_back(absl::StrCat("chunk_flow.retained_chunks ", retained));
  }
  const int64_t group = job.pool().cp_size;
  // In whole rows a smaller chunk never needs more.
  const int64_t rows = Largest(
      (std::min(shape.chunk_size, tokens) - 1) / group, [&](int64_t count) {
        return HoldsSequence(job, {count * group, shape.retained}, tokens);
      });
  if (rows > 0) {
    hints.push_back(
        absl::StrCat("chunk_flow.chunk_size_tokens ", rows * group));
  }
  if (job.models_gather()) {
    hints.emplace_back("more device_bytes or fewer gather_bytes_per_token");
  } else {
    hints.push_back(
        absl::StrCat("bucket_size_tokens ", RetainedRows(job, shape, tokens)));
  }
  return hints;
}

}  // namespace

absl::Status CheckChunks(const Job& job, std::span<const int64_t> lengths) {
  if (job.parallelism().uniform_micro_batch_count) {
    return FieldError(
        "parallelism.uniform_micro_batch_count",
        "must be false for POLICY_CHUNK_FLOW: it asks every DP rank to run the "
        "same passes in the same order, and their chunk schedules differ");
  }
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (HoldsSequence(job, ChooseChunkShape(job, longest), longest)) {
    return absl::OkStatus();
  }
  const int64_t limit = LongestInChunks(job, kMaxTokens);
  ErrorDetail detail{.reason = ErrorReason::kSequenceTooLong,
                     .field = "lengths",
                     .limit = limit};
  std::vector<std::string> named;
  int64_t count = 0;
  for (int64_t k = 0; k < std::ssize(lengths); ++k) {
    const int64_t tokens = lengths[static_cast<size_t>(k)];
    if (tokens <= limit) continue;
    if (count++ >= ErrorDetail::kMaxIndices) continue;
    detail.indices.push_back(k);
    named.push_back(absl::StrCat("index ", k, ": ", tokens, " > ", limit));
  }
  if (count > std::ssize(named)) {
    named.push_back(absl::StrCat("and ", count - std::ssize(named), " more"));
  }
  return MakeError(
      detail,
      absl::StrCat(
          "lengths: ", count, count == 1 ? " sequence is" : " sequences are",
          " longer than the ", limit, " tokens that chunks of one hold: ",
          absl::StrJoin(named, ", "), "; ", longest, " fits with ",
          absl::StrJoin(WhatWouldHold(job, longest), ", or ")));
}

absl::Status TooManyChunks(const Job& job, int64_t max_chunks) {
  return MakeError(
      {.reason = ErrorReason::kLimitExceeded,
       .field = "lengths",
       .limit = max_chunks},
      absl::StrCat(
          "lengths: POLICY_CHUNK_FLOW needs more than ", max_chunks, " chunks",
          job.parallelism().pp_size > 1
              ? absl::StrCat(" in ", job.parallelism().pp_size, " stages")
              : "",
          ", the most that are planned; a smaller batch or a larger "
          "chunk_flow.chunk_size_tokens fits"));
}

}  // namespace skrull
