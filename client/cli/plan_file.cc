#include "skrull/cli/plan_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "skrull/cli/io.h"
#include "skrull/cli/lengths_file.h"
#include "skrull/planner/plan_checker.h"
#include "skrull/planner/planner.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

// One past the largest sequence index of all plans.
int64_t LargestBatch(const std::vector<PlanLine>& lines) {
  int64_t size = 0;
  for (const PlanLine& line : lines) {
    for (const v1::MicroBatch& micro_batch : line.plan.micro_batches()) {
      for (const v1::Placement& placement : micro_batch.placements()) {
        size = std::max(size, int64_t{placement.sequence()} + 1);
      }
    }
    for (const v1::Chunk& chunk : line.plan.chunk_plan().chunks()) {
      for (const v1::ChunkPiece& piece : chunk.pieces()) {
        size = std::max(size, int64_t{piece.sequence()} + 1);
      }
    }
  }
  return size;
}

absl::Status Illegal(const std::string& why) {
  return absl::FailedPreconditionError(why);
}

}  // namespace

absl::StatusOr<std::vector<PlanLine>> ReadPlans(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadInput(path);
  if (!text.ok()) return text.status();
  std::vector<PlanLine> lines;
  absl::Status error;
  ForEachLine(*text, [&](int64_t number, const std::string& raw) {
    const std::string line(absl::StripAsciiWhitespace(raw));
    if (line.empty()) return true;
    absl::StatusOr<PlanLine> parsed = ParsePlanLine(line);
    if (!parsed.ok()) {
      error = absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": ",
                       std::string(parsed.status().message())));
      return false;
    }
    lines.push_back(*std::move(parsed));
    return true;
  });
  if (!error.ok()) return error;
  if (lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no plan"));
  }
  return lines;
}

absl::StatusOr<std::vector<std::span<const int64_t>>> MatchBatches(
    const std::vector<int64_t>& lengths, const std::vector<PlanLine>& lines,
    int64_t batch_size) {
  const bool given = batch_size > 0;
  if (!given && lines.size() > 1) batch_size = LargestBatch(lines);
  auto batches = SplitBatches(lengths, batch_size);
  if (batches.size() == lines.size()) return batches;
  return absl::InvalidArgumentError(absl::StrCat(
      lengths.size(), " lengths make ", batches.size(),
      " batches, but there are ", lines.size(), " plans",
      given ? "" : "; give the --batch-size they were planned with"));
}

absl::StatusOr<Plan> LegalPlan(const Job& job, std::span<const int64_t> lengths,
                               const v1::Plan& wire) {
  const std::string digest = PlanDigest(wire);
  if (wire.digest() != digest) {
    return Illegal(absl::StrCat("digest is ", wire.digest(),
                                ", but that of the plan is ", digest));
  }
  absl::StatusOr<Plan> plan = PlanFromProto(wire);
  if (!plan.ok()) return plan;
  const absl::Status batch = CheckBatch(job, lengths, plan->policy);
  if (!batch.ok()) {
    return Illegal(absl::StrCat("the batch must be refused: ",
                                std::string(batch.message())));
  }
  absl::Status legal = CheckPlan(job, lengths, *plan);
  if (!legal.ok()) return legal;
  return plan;
}

}  // namespace skrull::cli
