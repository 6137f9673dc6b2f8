#include "skrull/client/fallback_planner.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"
#include "skrull/client/local_planner.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::hours kLongest{24};

absl::Status CheckOptions(const FallbackOptions& options) {
  const auto in_range = [](milliseconds value) {
    return value >= milliseconds(1) && value <= kLongest;
  };
  if (!in_range(options.longest_pause)) {
    return client_internal::InvalidField("longest_pause",
                                         "must be in 1 ms .. 24 h");
  }
  if (options.first_pause < milliseconds(1) ||
      options.first_pause > options.longest_pause) {
    return client_internal::InvalidField("first_pause",
                                         "must be in 1 ms .. longest_pause");
  }
  if (!in_range(options.probe_timeout)) {
    return client_internal::InvalidField("probe_timeout",
                                         "must be in 1 ms .. 24 h");
  }
  return absl::OkStatus();
}

// `status` with more at the end of its message.
absl::Status Extended(const absl::Status& status, const std::string& more) {
  absl::Status extended(status.code(), absl::StrCat(status.message(), more));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    extended.SetPayload(url, payload);
  });
  return extended;
}

}  // namespace

class FallbackPlanner::Impl {
 public:
  Impl(PlannerClient* client, const JobInfo& job,
       const FallbackOptions& options)
      : client_(client),
        name_(job.name),
        generation_(job.generation),
        options_(options),
        pause_(options.first_pause) {}

  absl::StatusOr<FallbackPlan> PlanBatch(const FallbackBatch& batch,
                                         const CallOptions& call) {
    const absl::Status away = Pausing();
    if (!away.ok()) return PlanInProcess(batch, away);
    absl::StatusOr<PlanResult> plan = Ask(batch, call);
    if (plan.ok()) return FallbackPlan{.plan = *std::move(plan)};
    if (!IsAway(plan.status())) {
      SetReached();
      return plan.status();
    }
    SetAway(plan.status());
    return PlanInProcess(batch, plan.status());
  }

  absl::StatusOr<ReportAnswer> ReportStep(const StepReport& report,
                                          const CallOptions& call) {
    absl::StatusOr<ReportAnswer> answer =
        client_->ReportStep(name_, generation_, report, call);
    if (answer.ok()) Show(answer->calibration_epoch);
    return answer;
  }

  // Plans with the job as it is in `job` from here on, unless that is another
  // generation or an earlier epoch. Errors: those of LocalPlanner::Create.
  absl::Status Adopt(const JobInfo& job) {
    if (job.generation != generation_) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<LocalPlanner>> planner =
        LocalPlanner::Create(job.calibrated_spec_text, job.calibration_epoch);
    if (!planner.ok()) return planner.status();
    std::lock_guard<std::mutex> lock(mutex_);
    // Of two answers the older may come last.
    if (planner_ != nullptr && job.calibration_epoch < epoch_) {
      return absl::OkStatus();
    }
    planner_ = *std::move(planner);
    epoch_ = job.calibration_epoch;
    shown_epoch_ = std::max(shown_epoch_, epoch_);
    return absl::OkStatus();
  }

  int64_t epoch() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return epoch_;
  }

 private:
  // Why not to ask the daemon now; OK = ask it. Of several threads, one asks a
  // daemon that was away.
  absl::Status Pausing() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (away_.ok()) return absl::OkStatus();
    const auto now = steady_clock::now();
    if (now < ask_after_) return away_;
    ask_after_ = now + pause_;
    return absl::OkStatus();
  }

  absl::StatusOr<PlanResult> Ask(const FallbackBatch& batch,
                                 const CallOptions& call) {
    if (!IsReached()) {
      // It may be back, at another epoch, or still away: then this is the whole
      // wait. What else it answers, PlanBatch answers as well.
      const absl::Status back = Refresh();
      if (absl::IsUnavailable(back) || absl::IsDeadlineExceeded(back)) {
        return back;
      }
    }
    absl::StatusOr<PlanResult> plan =
        client_->PlanBatch({.job = name_,
                            .generation = generation_,
                            .step = batch.step,
                            .attempt = batch.attempt,
                            .lengths = batch.lengths,
                            .policy = batch.policy},
                           call);
    if (plan.ok()) {
      SetReached();
      Show(plan->calibration_epoch);
    }
    return plan;
  }

  // Whether the error of a call means that the daemon is away.
  bool IsAway(const absl::Status& status) {
    if (absl::IsUnavailable(status)) return true;
    // A daemon that says so itself, or is well, was only slow.
    if (!absl::IsDeadlineExceeded(status) || GetRefusalDetail(status)) {
      return false;
    }
    const absl::Status health =
        client_->CheckHealth({.timeout = options_.probe_timeout});
    return absl::IsUnavailable(health) || absl::IsDeadlineExceeded(health);
  }

  // Asks for the job as it is now.
  absl::Status Refresh() {
    const absl::StatusOr<JobInfo> job =
        client_->GetJob(name_, {.timeout = options_.probe_timeout});
    return job.ok() ? Adopt(*job) : job.status();
  }

  // An answer showed this epoch.
  void Show(int64_t epoch) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      shown_epoch_ = std::max(shown_epoch_, epoch);
      if (shown_epoch_ <= epoch_) return;
    }
    // If this fails, the next answer tries again.
    (void)Refresh();
  }

  absl::StatusOr<FallbackPlan> PlanInProcess(const FallbackBatch& batch,
                                             const absl::Status& away) {
    std::shared_ptr<const LocalPlanner> planner;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (shown_epoch_ > epoch_) {
        return Extended(
            away, absl::StrCat("; not planned in process: job \"", name_,
                               "\" is at calibration epoch ", shown_epoch_,
                               ", of which only the number is known here"));
      }
      planner = planner_;
    }
    absl::StatusOr<PlanResult> plan =
        planner->PlanBatch({.job = name_,
                            .step = batch.step,
                            .attempt = batch.attempt,
                            .lengths = batch.lengths,
                            .policy = batch.policy});
    if (!plan.ok()) return plan.status();
    return FallbackPlan{
        .plan = *std::move(plan), .in_process = true, .daemon = away};
  }

  bool IsReached() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return away_.ok();
  }

  void SetReached() {
    std::lock_guard<std::mutex> lock(mutex_);
    away_ = absl::OkStatus();
    pause_ = options_.first_pause;
  }

  void SetAway(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    away_ = status;
    ask_after_ = steady_clock::now() + pause_;
    pause_ = std::min(2 * pause_, options_.longest_pause);
  }

  PlannerClient* const client_;
  const std::string name_;
  const int64_t generation_;
  const FallbackOptions options_;

  // Guards what follows. Never held over a call or while planning.
  mutable std::mutex mutex_;
  std::shared_ptr<const LocalPlanner> planner_;  // of epoch_
  int64_t epoch_ = 0;
  int64_t shown_epoch_ = 0;  // the newest that an answer showed
  absl::Status away_;        // how the last call failed; OK = it was answered
  steady_clock::time_point ask_after_;  // while away
  milliseconds pause_;                  // the next one
};

absl::StatusOr<std::unique_ptr<FallbackPlanner>> FallbackPlanner::Create(
    PlannerClient* client, const JobInfo& job, const FallbackOptions& options) {
  absl::Status status = CheckOptions(options);
  if (!status.ok()) return status;
  auto impl = std::make_unique<Impl>(client, job, options);
  status = impl->Adopt(job);
  if (!status.ok()) return status;
  return std::unique_ptr<FallbackPlanner>(new FallbackPlanner(std::move(impl)));
}

FallbackPlanner::FallbackPlanner(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

FallbackPlanner::~FallbackPlanner() = default;

absl::StatusOr<FallbackPlan> FallbackPlanner::PlanBatch(
    const FallbackBatch& batch, const CallOptions& call) {
  return impl_->PlanBatch(batch, call);
}

absl::StatusOr<ReportAnswer> FallbackPlanner::ReportStep(
    const StepReport& report, const CallOptions& call) {
  return impl_->ReportStep(report, call);
}

int64_t FallbackPlanner::calibration_epoch() const { return impl_->epoch(); }

}  // namespace skrull
