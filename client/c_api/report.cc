#include "skrull/c_api/report.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace skrull::client_c {
namespace {

std::optional<double> Seconds(double seconds) {
  return seconds < 0 ? std::nullopt : std::optional(seconds);
}

}  // namespace

absl::StatusOr<StepReport> ReadReport(const skrull_client_step_report& given) {
  absl::Status reserved = CheckZero("report.reserved", given.reserved);
  if (!reserved.ok()) return reserved;
  constexpr StepOutcome kOutcomes[] = {
      StepOutcome::kOk, StepOutcome::kOutOfMemory, StepOutcome::kFailed};
  if (given.outcome < 0 || given.outcome > 2) {
    return InvalidField("outcome",
                        absl::StrCat("must be 0 .. 2, is ", given.outcome));
  }
  return StepReport{.step = given.step,
                    .attempt = given.attempt,
                    .rank = given.rank,
                    .outcome = kOutcomes[given.outcome],
                    .step_seconds = Seconds(given.step_seconds),
                    .attention_seconds = Seconds(given.attention_seconds),
                    .exchange_seconds = Seconds(given.exchange_seconds),
                    .peak_bytes = given.peak_bytes};
}

}  // namespace skrull::client_c
