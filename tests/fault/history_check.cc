// What a history says of a store, and of the planner.
#include <optional>

#include "skrull/planner/planner.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/convert.h"
#include "skrull/tests/fault/history.h"

namespace skrull::testing {

void History::CheckStore(Store* store) {
  MutexLock lock(&mutex_);
  for (const auto& [life, facts] : lives_) {
    if (facts.state == State::kAlive) CheckStoredLife(store, life, facts);
    if (facts.state == State::kEnded) {
      const absl::StatusOr<JobRecord> job = store->Get(life.job);
      if (job.ok() && job->generation == life.generation) {
        AddWrong(TextOf(life) + ": has ended, and is in the store");
      }
    }
  }
}

void History::CheckStoredLife(Store* store, const Life& life,
                              const LifeFacts& facts) {
  const absl::StatusOr<JobRecord> job = store->Get(life.job);
  if (!job.ok() || job->generation != life.generation ||
      CanonicalBytes(job->spec) != CanonicalBytes(facts.spec)) {
    AddWrong(TextOf(life) +
             ": is not in the store: " + job.status().ToString());
    return;
  }
  ++counts_.stored;
  if (job->calibration.epoch() < facts.epoch) {
    AddWrong(TextOf(life) + ": its epoch is not in the store");
  }
  const auto epochs = store->Calibrations(life.job, life.generation);
  for (const v1::Calibration& epoch : epochs.value()) {
    const auto seen = facts.epochs.find(epoch.epoch());
    if (seen == facts.epochs.end()) continue;
    ++counts_.stored;
    if (seen->second != CanonicalBytes(epoch)) {
      AddWrong(TextOf(life) + ": the store has another epoch " +
               std::to_string(epoch.epoch()));
    }
  }
  for (const auto& [key, key_facts] : facts.keys) {
    CheckStoredKey(store, life, key, key_facts);
  }
}

void History::CheckStoredKey(Store* store, const Life& life, const Key& key,
                             const KeyFacts& facts) {
  const PlanKey plan_key{life.job, key.first, key.second};
  const std::string what =
      TextOf(Request{life, key.first, key.second, facts.variant});
  if (!facts.plan.empty()) {
    const auto plan = store->Find(plan_key, life.generation);
    if (!plan.ok() || !plan->has_value() || (*plan)->plan != facts.plan) {
      AddWrong(what + ": its plan is not in the store");
    }
    ++counts_.stored;
  }
  if (facts.reports.empty()) return;
  std::map<int32_t, int64_t> peaks;
  const auto reports = store->Reports(plan_key, life.generation, 1000);
  for (const v1::StepReport& report : reports.value()) {
    peaks[report.rank()] = report.peak_bytes();
  }
  for (const auto& [rank, peak] : facts.reports) {
    if (peaks[rank] < peak) {
      AddWrong(what + ": the report of rank " + std::to_string(rank) +
               " is not in the store");
    }
    ++counts_.stored;
  }
}

void History::CheckPlans() {
  MutexLock lock(&mutex_);
  for (const auto& [life, facts] : lives_) {
    for (const auto& [key, key_facts] : facts.keys) {
      if (!key_facts.plan.empty()) CheckPlan(life, facts, key, key_facts);
    }
  }
}

void History::CheckPlan(const Life& life, const LifeFacts& facts,
                        const Key& key, const KeyFacts& key_facts) {
  const Request request{life, key.first, key.second, key_facts.variant};
  v1::Plan plan;
  plan.ParseFromString(key_facts.plan);
  v1::Calibration calibration;
  if (plan.calibration_epoch() != 0) {
    const auto seen = facts.epochs.find(plan.calibration_epoch());
    if (seen == facts.epochs.end()) return;  // nobody asked for that epoch
    calibration.ParseFromString(seen->second);
  }
  const auto job = JobFromProto(ApplyCalibration(facts.spec, calibration));
  const auto made = MakePlan(*job, LengthsOf(request),
                             {.key = {life.job, key.first, key.second},
                              .policy = std::nullopt,
                              .calibration_epoch = plan.calibration_epoch()});
  if (!made.ok() || EncodePlan(*made).bytes != key_facts.plan) {
    AddWrong(TextOf(request) + ": the planner makes another plan");
  }
}

}  // namespace skrull::testing
