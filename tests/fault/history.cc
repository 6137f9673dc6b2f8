#include "skrull/tests/fault/history.h"

#include <algorithm>

#include "skrull/server/committed_plan.h"
#include "skrull/server/convert.h"

namespace skrull::testing {
namespace {

constexpr size_t kMaxWrongs = 20;  // listed; one is enough to fail
constexpr size_t kLatest = 300;    // plans that clients ask about

}  // namespace

std::string TextOf(const Life& life) {
  return life.job + " generation " + std::to_string(life.generation);
}

std::string TextOf(const Request& request) {
  return TextOf(request.life) + " step " + std::to_string(request.step) +
         " attempt " + std::to_string(request.attempt) + " variant " +
         std::to_string(request.variant);
}

std::vector<int64_t> LengthsOf(const Request& request) {
  std::seed_seq seed{static_cast<int64_t>(request.life.job.back()),
                     request.life.generation, request.step,
                     int64_t{request.variant}};
  std::mt19937 engine(seed);
  std::vector<int64_t> lengths(1 + engine() % 24);
  for (int64_t& length : lengths) length = 1 + engine() % 150;
  // Variants differ, whatever the engine says.
  lengths.push_back(1 + request.variant);
  return lengths;
}

// ---------------------------------------------------------------------------
// Lives.

History::Ticket History::Begin(const Life& life) {
  MutexLock lock(&mutex_);
  const LifeFacts& facts = lives_[life];
  return {.life = life,
          .alive = facts.state == State::kAlive,
          .ended = facts.state == State::kEnded,
          .epoch = facts.epoch};
}

void History::CreateSent(const Life& life, const v1::JobSpec& spec) {
  MutexLock lock(&mutex_);
  lives_[life].spec = spec;
}

void History::Created(const Life& life, const v1::Job& job) {
  MutexLock lock(&mutex_);
  LifeFacts& facts = lives_[life];
  if (job.name() != life.job || job.generation() != life.generation ||
      CanonicalBytes(job.spec()) != CanonicalBytes(facts.spec)) {
    AddWrong(TextOf(life) +
             ": another job was created: " + job.ShortDebugString());
  }
  if (facts.state == State::kWanted) {
    facts.state = State::kAlive;
    ++counts_.lives;
  }
}

void History::EndSent(const Life& life) {
  MutexLock lock(&mutex_);
  lives_[life].state = State::kEnding;
}

void History::Ended(const Life& life) {
  MutexLock lock(&mutex_);
  lives_[life].state = State::kEnded;
}

History::LifeFacts* History::CheckAlive(const Ticket& ticket,
                                        const std::string& what) {
  if (ticket.ended) AddWrong(what + " was answered after the job's end");
  return &lives_[ticket.life];
}

void History::NoJob(const Ticket& ticket, const std::string& answer) {
  MutexLock lock(&mutex_);
  if (ticket.alive && lives_[ticket.life].state == State::kAlive) {
    AddWrong(TextOf(ticket.life) + ": the job is lost: " + answer);
  }
}

void History::SeeEpoch(const Ticket& ticket, int64_t epoch, LifeFacts* facts) {
  if (epoch < ticket.epoch) {
    AddWrong(TextOf(ticket.life) + ": the epoch fell from " +
             std::to_string(ticket.epoch) + " to " + std::to_string(epoch));
  }
  facts->epoch = std::max(facts->epoch, epoch);
}

void History::GotJob(const Ticket& ticket, const v1::Job& job) {
  MutexLock lock(&mutex_);
  // Another life of the name says nothing about this one but that it ended.
  if (job.generation() != ticket.life.generation) {
    if (ticket.alive && lives_[ticket.life].state == State::kAlive) {
      AddWrong(TextOf(ticket.life) + ": the job is lost to generation " +
               std::to_string(job.generation()));
    }
    return;
  }
  LifeFacts* const facts = CheckAlive(ticket, TextOf(ticket.life));
  if (CanonicalBytes(job.spec()) != CanonicalBytes(facts->spec)) {
    AddWrong(TextOf(ticket.life) + ": the spec changed");
  }
  SeeEpoch(ticket, job.calibration_epoch(), facts);
  SeeCalibration(ticket.life, job.calibration(), facts);
}

void History::GotEpochs(const Ticket& ticket,
                        const v1::ListCalibrationsResponse& response) {
  MutexLock lock(&mutex_);
  LifeFacts* const facts = CheckAlive(ticket, TextOf(ticket.life));
  int64_t next =
      response.calibrations_size() == 0 ? 0 : response.calibrations(0).epoch();
  for (const v1::Calibration& calibration : response.calibrations()) {
    if (calibration.epoch() != next++) {
      AddWrong(TextOf(ticket.life) + ": an epoch is missing");
    }
    SeeCalibration(ticket.life, calibration, facts);
  }
  SeeEpoch(ticket, next - 1, facts);
}

void History::SeeCalibration(const Life& life,
                             const v1::Calibration& calibration,
                             LifeFacts* facts) {
  const std::string bytes = CanonicalBytes(calibration);
  const auto [it, is_new] = facts->epochs.emplace(calibration.epoch(), bytes);
  if (it->second != bytes) {
    AddWrong(TextOf(life) + ": epoch " + std::to_string(calibration.epoch()) +
             " changed");
  }
  if (is_new && calibration.epoch() > 0) ++counts_.epochs;
}

// ---------------------------------------------------------------------------
// Plans and reports.

void History::BatchSent(const Request& request) {
  MutexLock lock(&mutex_);
  LifeFacts& facts = lives_[request.life];
  facts.next_step = std::max(facts.next_step, request.step + 1);
  facts.keys[{request.step, request.attempt}].asked.insert(request.variant);
}

void History::Planned(const Ticket& ticket, const Request& request,
                      const v1::PlanBatchResponse& response) {
  MutexLock lock(&mutex_);
  const std::string what = TextOf(request);
  LifeFacts* const life = CheckAlive(ticket, what);
  KeyFacts& facts = life->keys[{request.step, request.attempt}];
  const std::string plan = CanonicalBytes(response.plan());
  if (!response.committed()) AddWrong(what + ": the plan is not committed");
  if (facts.refused.contains(request.variant)) {
    AddWrong(what + ": has a plan, and was refused for another before");
  }
  if (PlanDigest(response.plan()) != response.plan().digest()) {
    AddWrong(what + ": the plan is not that of its digest");
  }
  if (!facts.plan.empty()) {
    if (facts.variant != request.variant || facts.plan != plan) {
      AddWrong(what + ": has another plan than before");
    }
    return;
  }
  facts.variant = request.variant;
  facts.plan = plan;
  int32_t& attempt = life->attempts[request.step];
  attempt = std::max(attempt, request.attempt);
  planned_.push_back(request);
  ++counts_.plans;
}

void History::Conflicted(const Ticket& ticket, const Request& request) {
  MutexLock lock(&mutex_);
  const std::string what = TextOf(request);
  KeyFacts& facts =
      CheckAlive(ticket, what)->keys[{request.step, request.attempt}];
  if (facts.variant == request.variant) {
    AddWrong(what + ": is refused, and was planned before");
  }
  if (facts.asked == std::set<int>{request.variant}) {
    AddWrong(what + ": is refused for lengths that nobody asked for");
  }
  facts.refused.insert(request.variant);
  ++counts_.conflicts;
}

void History::GotShare(const Ticket& ticket, const Request& request,
                       const v1::RankPlan& share) {
  MutexLock lock(&mutex_);
  const std::string what =
      TextOf(request) + " rank " + std::to_string(share.rank());
  const KeyFacts& facts =
      CheckAlive(ticket, what)->keys[{request.step, request.attempt}];
  const auto plan = CommittedPlan::Decode(
      {.key = {request.life.job, request.step, request.attempt},
       .generation = request.life.generation,
       .request_digest = "",
       .plan = facts.plan});
  if (!plan.ok() ||
      CanonicalBytes(RankPlanToProto((*plan)->Share(share.rank()))) !=
          CanonicalBytes(share)) {
    AddWrong(what + ": the share is not that of the plan");
  }
  ++counts_.shares;
}

void History::Reported(const Ticket& ticket, const Request& request,
                       const v1::StepReport& report,
                       const v1::ReportStepResponse& response) {
  MutexLock lock(&mutex_);
  LifeFacts* const life = CheckAlive(ticket, TextOf(request));
  SeeEpoch(ticket, response.calibration_epoch(), life);
  int64_t& peak =
      life->keys[{request.step, request.attempt}].reports[report.rank()];
  peak = std::max(peak, report.peak_bytes());
  // A further attempt is planned for the same lengths.
  int32_t& attempt = life->attempts[request.step];
  while (attempt < response.attempt()) {
    life->keys[{request.step, ++attempt}].asked.insert(request.variant);
  }
  ++counts_.reports;
}

void History::Wrong(const std::string& what) {
  MutexLock lock(&mutex_);
  AddWrong(what);
}

void History::AddWrong(const std::string& what) {
  if (wrongs_.size() < kMaxWrongs) wrongs_.push_back(what);
}

// ---------------------------------------------------------------------------
// What to ask next.

std::optional<Life> History::AnyLife(std::mt19937_64* engine) {
  MutexLock lock(&mutex_);
  std::vector<Life> open;
  for (const auto& [life, facts] : lives_) {
    if (facts.state != State::kEnded) open.push_back(life);
  }
  if (open.empty()) return std::nullopt;
  return open[(*engine)() % open.size()];
}

std::optional<Request> History::AnyPlanned(std::mt19937_64* engine) {
  MutexLock lock(&mutex_);
  if (planned_.empty()) return std::nullopt;
  // Of the latest ones, some of them of lives that have ended.
  const size_t latest = std::min(planned_.size(), kLatest);
  return planned_[planned_.size() - 1 - (*engine)() % latest];
}

std::optional<Request> History::AnyStep(std::mt19937_64* engine) {
  const std::optional<Life> life = AnyLife(engine);
  if (!life) return std::nullopt;
  MutexLock lock(&mutex_);
  const LifeFacts& facts = lives_[*life];
  // Mostly the next one; now and then one that another client asks for, too.
  const int64_t back = static_cast<int64_t>((*engine)() % 3);
  return Request{.life = *life,
                 .step = std::max<int64_t>(0, facts.next_step - back),
                 .attempt = 0,
                 .variant = static_cast<int>((*engine)() % kVariants)};
}

std::vector<Request> History::AllPlanned(size_t latest) {
  MutexLock lock(&mutex_);
  std::vector<Request> all;
  for (const Request& request : planned_) {
    if (lives_[request.life].state == State::kAlive) all.push_back(request);
  }
  if (latest != 0 && all.size() > latest) {
    all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(latest));
  }
  return all;
}

History::Counts History::counts() {
  MutexLock lock(&mutex_);
  return counts_;
}

std::vector<std::string> History::wrongs() {
  MutexLock lock(&mutex_);
  return wrongs_;
}

}  // namespace skrull::testing
