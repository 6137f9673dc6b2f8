// What a daemon has answered, and whether its answers agree.
//
// The fault test's clients tell it of each call before it is sent and of each
// answer. An answer that was lost proves nothing: the call may have been done
// or not. An answer that arrived must agree with all others, whatever happened
// to the daemon between them:
//   - a job that was created is there until somebody asks for its end, and not
//     again once its end was answered;
//   - a key has one plan, for lengths that somebody asked it for, which the
//     planner makes of them in this process, too; it is refused for other
//     lengths; and each rank's share is that plan's;
//   - a job's epoch never falls, and an epoch never changes;
//   - what was answered is in the store.
// Generations of a name are never used twice here, so that a name and a
// generation tell a life of a job.
#ifndef SKRULL_TESTS_FAULT_HISTORY_H_
#define SKRULL_TESTS_FAULT_HISTORY_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "skrull/server/mutex.h"
#include "skrull/server/store.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::testing {

struct Life {
  std::string job;
  int64_t generation = 0;

  friend auto operator<=>(const Life&, const Life&) = default;
};

// A key of a life, and which of its possible batches is meant.
struct Request {
  Life life;
  int64_t step = 0;
  int32_t attempt = 0;
  int variant = 0;
};

inline constexpr int kVariants = 3;

// For messages.
std::string TextOf(const Life& life);
std::string TextOf(const Request& request);

// The lengths that `request` stands for; attempts do not matter.
std::vector<int64_t> LengthsOf(const Request& request);

// Thread-safe.
class History {
 public:
  // What was known of a life when a call began.
  struct Ticket {
    Life life;
    bool alive = false;  // created, and nobody has asked for its end
    bool ended = false;
    int64_t epoch = 0;
  };
  Ticket Begin(const Life& life) SKRULL_EXCLUDES(mutex_);

  // By the one client that creates and ends the lives of a name.
  void CreateSent(const Life& life, const v1::JobSpec& spec)
      SKRULL_EXCLUDES(mutex_);
  void Created(const Life& life, const v1::Job& job) SKRULL_EXCLUDES(mutex_);
  void EndSent(const Life& life) SKRULL_EXCLUDES(mutex_);
  void Ended(const Life& life) SKRULL_EXCLUDES(mutex_);

  // Answers of any client. BatchSent comes before the call is sent.
  void BatchSent(const Request& request) SKRULL_EXCLUDES(mutex_);
  void Planned(const Ticket& ticket, const Request& request,
               const v1::PlanBatchResponse& response) SKRULL_EXCLUDES(mutex_);
  void Conflicted(const Ticket& ticket, const Request& request)
      SKRULL_EXCLUDES(mutex_);
  void GotShare(const Ticket& ticket, const Request& request,
                const v1::RankPlan& share) SKRULL_EXCLUDES(mutex_);
  void GotJob(const Ticket& ticket, const v1::Job& job) SKRULL_EXCLUDES(mutex_);
  void GotEpochs(const Ticket& ticket,
                 const v1::ListCalibrationsResponse& response)
      SKRULL_EXCLUDES(mutex_);
  // One client reports for a rank of a key, with a higher peak each time.
  void Reported(const Ticket& ticket, const Request& request,
                const v1::StepReport& report,
                const v1::ReportStepResponse& response) SKRULL_EXCLUDES(mutex_);
  // kJobNotFound or kGenerationMismatch.
  void NoJob(const Ticket& ticket, const std::string& answer)
      SKRULL_EXCLUDES(mutex_);
  // An answer that no call here may get.
  void Wrong(const std::string& what) SKRULL_EXCLUDES(mutex_);

  // A life that is not known to have ended; a key of it that has a plan, or one
  // that may have none. nullopt if there is none.
  std::optional<Life> AnyLife(std::mt19937_64* engine) SKRULL_EXCLUDES(mutex_);
  std::optional<Request> AnyPlanned(std::mt19937_64* engine)
      SKRULL_EXCLUDES(mutex_);
  std::optional<Request> AnyStep(std::mt19937_64* engine)
      SKRULL_EXCLUDES(mutex_);

  // Every key that has a plan, of every life that is known to be alive; with
  // `latest` not 0, only those planned last.
  std::vector<Request> AllPlanned(size_t latest = 0) SKRULL_EXCLUDES(mutex_);

  // Whether `store`, which no daemon changes meanwhile, holds what was
  // answered.
  void CheckStore(Store* store) SKRULL_EXCLUDES(mutex_);
  // Whether the planner makes the plans that were answered.
  void CheckPlans() SKRULL_EXCLUDES(mutex_);

  struct Counts {
    int64_t lives = 0;
    int64_t plans = 0;
    int64_t conflicts = 0;
    int64_t shares = 0;
    int64_t reports = 0;
    int64_t epochs = 0;  // other than 0
    int64_t stored = 0;  // facts that were found in the store
  };
  Counts counts() SKRULL_EXCLUDES(mutex_);
  // What did not agree; empty if all did.
  std::vector<std::string> wrongs() SKRULL_EXCLUDES(mutex_);

 private:
  using Key = std::pair<int64_t, int32_t>;  // step, attempt
  enum class State { kWanted, kAlive, kEnding, kEnded };
  struct KeyFacts {
    std::set<int> asked;    // variants
    std::set<int> refused;  // variants, for another that stands
    int variant = -1;       // of the plan
    std::string plan;       // bytes; empty = not known
    // Highest peak_bytes answered, by rank.
    std::map<int32_t, int64_t> reports;
  };
  struct LifeFacts {
    State state = State::kWanted;
    v1::JobSpec spec;
    int64_t epoch = 0;                      // the highest seen
    std::map<int64_t, std::string> epochs;  // bytes
    std::map<int64_t, int32_t> attempts;    // by step: the highest seen
    std::map<Key, KeyFacts> keys;
    int64_t next_step = 0;
  };

  LifeFacts* CheckAlive(const Ticket& ticket, const std::string& what)
      SKRULL_REQUIRES(mutex_);
  void SeeEpoch(const Ticket& ticket, int64_t epoch, LifeFacts* facts)
      SKRULL_REQUIRES(mutex_);
  void SeeCalibration(const Life& life, const v1::Calibration& calibration,
                      LifeFacts* facts) SKRULL_REQUIRES(mutex_);
  void AddWrong(const std::string& what) SKRULL_REQUIRES(mutex_);
  void CheckStoredLife(Store* store, const Life& life, const LifeFacts& facts)
      SKRULL_REQUIRES(mutex_);
  void CheckStoredKey(Store* store, const Life& life, const Key& key,
                      const KeyFacts& facts) SKRULL_REQUIRES(mutex_);
  void CheckPlan(const Life& life, const LifeFacts& facts, const Key& key,
                 const KeyFacts& key_facts) SKRULL_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<Life, LifeFacts> lives_ SKRULL_GUARDED_BY(mutex_);
  std::vector<Request> planned_ SKRULL_GUARDED_BY(mutex_);  // in that order
  std::vector<std::string> wrongs_ SKRULL_GUARDED_BY(mutex_);
  Counts counts_ SKRULL_GUARDED_BY(mutex_);
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_FAULT_HISTORY_H_
