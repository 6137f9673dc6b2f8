// The directory beside a store that others change, too. What it promises where
// it owns its store is tested with plan_directory_test.cc.
#include "skrull/server/job_directory.h"

#include <catch2/catch.hpp>
#include <deque>
#include <utility>

#include "skrull/planner/error.h"
#include "skrull/server/convert.h"
#include "skrull/server/memory_store.h"
#include "skrull/tests/server/service_test_util.h"

namespace skrull {
namespace {

ErrorReason ReasonOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{}).reason;
}

// A store that tells of changes when the test says so.
class SharedStore final : public JobStore {
 public:
  absl::StatusOr<JobRecord> Create(const JobRecord& wanted,
                                   const CreateTerms& terms) override {
    auto record = memory_.Create(wanted, terms);
    if (record.ok() && record->version > told_or_queued_) Queue(*record);
    if (on_created) std::exchange(on_created, nullptr)();
    return record;
  }
  absl::StatusOr<JobRecord> Get(const std::string& name) override {
    return memory_.Get(name);
  }
  absl::StatusOr<std::vector<JobRecord>> List(const std::string& after,
                                              int64_t limit) override {
    auto page = memory_.List(after, limit);
    if (on_list) on_list();
    return page;
  }
  absl::Status Delete(const JobLife& life) override {
    absl::Status status = memory_.Delete(life);
    if (status.ok()) {
      changes_.push_back({life.name, std::nullopt, ++told_or_queued_});
    }
    return status;
  }
  absl::StatusOr<int64_t> Count() override { return memory_.Count(); }
  absl::StatusOr<JobRecord> Advance(const JobLife& life,
                                    const v1::Calibration& next) override {
    auto record = memory_.Advance(life, next);
    if (record.ok() && record->version > told_or_queued_) Queue(*record);
    return record;
  }
  absl::StatusOr<std::vector<v1::Calibration>> Calibrations(
      const std::string& name, int64_t generation) override {
    return memory_.Calibrations(name, generation);
  }
  void Watch(Observer observer) override { observer_ = std::move(observer); }

  // Tells of the oldest change that was not told of.
  void TellOne() {
    observer_(changes_.front());
    changes_.pop_front();
  }
  void TellAll() {
    while (!changes_.empty()) TellOne();
  }
  bool is_watched() const { return observer_ != nullptr; }

  std::function<void()> on_list;     // the answer is made, not yet given
  std::function<void()> on_created;  // the same; called once

 private:
  void Queue(const JobRecord& record) {
    changes_.push_back({record.name, record, record.version});
    told_or_queued_ = record.version;
  }

  MemoryStore memory_;
  Observer observer_;
  std::deque<JobChange> changes_;
  int64_t told_or_queued_ = 0;
};

v1::Calibration Bucket(int64_t epoch, int64_t bucket) {
  v1::Calibration calibration;
  calibration.set_epoch(epoch);
  calibration.set_cause(v1::CALIBRATION_CAUSE_OUT_OF_MEMORY);
  calibration.set_bucket_size_tokens(bucket);
  return calibration;
}

struct Replica {
  JobRecord Wanted(const std::string& name, int64_t generation = 0) const {
    return {.name = name, .spec = spec, .generation = generation};
  }
  // Another replica deletes the job and registers it anew, which is not told
  // of.
  void Remake(const std::string& name, const std::string& owner) {
    JobRecord wanted = Wanted(name);
    wanted.owner = owner;
    REQUIRE(store.Delete({name}).ok());
    REQUIRE(store.Create(wanted, {}).ok());
  }
  int64_t EpochOf(const std::string& name) {
    return (*jobs.Find(name))->calibrated()->calibration.epoch();
  }

  const v1::JobSpec spec = testing::SmallSpec(2, 2, 100);
  const Logger logger{LogLevel::kError, Clock::Real()};
  Metrics metrics;
  SharedStore store;
  std::vector<std::string> ends;  // names of jobs that ended, and why
  JobDirectory jobs{&store, &logger, &metrics,
                    [this](const RegisteredJob& job) {
                      ends.push_back(job.record().name + " " +
                                     ErrorReasonName(ReasonOf(job.ended())));
                    }};
};

TEST_CASE("JobDirectory: others' changes arrive as they are told of",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  REQUIRE(r.store.Create(r.Wanted("run"), {}).ok());
  CHECK(r.jobs.count() == 0);
  r.store.TellAll();
  const auto job = *r.jobs.Find("run");
  CHECK(job->calibrated()->calibration.epoch() == 0);

  REQUIRE(r.store.Advance({"run", 1}, Bucket(1, 50)).ok());
  r.store.TellAll();
  CHECK(*r.jobs.Find("run") == job);  // the same life
  CHECK(job->calibrated()->calibration.epoch() == 1);
  CHECK(job->calibrated()->job.bucket_size() == 50);
  CHECK(job->calibrated()->spec.memory().bucket_size_tokens() == 50);
  CHECK(job->job().bucket_size() == 100);
  CHECK(job->CurrentRecord().calibration.epoch() == 1);
  CHECK(job->CurrentRecord().version == 2);
  CHECK(r.ends.empty());

  REQUIRE(r.store.Create(r.Wanted("run", 2), {}).ok());
  r.store.TellAll();
  CHECK(r.EpochOf("run") == 0);
  CHECK((*r.jobs.Find("run"))->record().generation == 2);
  REQUIRE(r.store.Delete({"run"}).ok());
  r.store.TellAll();
  CHECK(r.jobs.count() == 0);
  CHECK(r.ends == std::vector<std::string>{"run GENERATION_MISMATCH",
                                           "run JOB_NOT_FOUND"});
  CHECK(ReasonOf(job->Write([] { return absl::OkStatus(); })) ==
        ErrorReason::kGenerationMismatch);
}

TEST_CASE("JobDirectory: what is told late does not undo what is known",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto job = *r.jobs.Find("run");
  REQUIRE(r.jobs.Advance(job, Bucket(1, 50)).ok());
  REQUIRE(r.jobs.Advance(job, Bucket(2, 40)).ok());
  CHECK(r.EpochOf("run") == 2);
  for (int i = 0; i < 3; ++i) {
    r.store.TellOne();
    CHECK(r.EpochOf("run") == 2);
    CHECK(*r.jobs.Find("run") == job);
  }
  // Deleted and made anew here, before anything of it is told.
  REQUIRE(r.jobs.Delete("run", 0).ok());
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto next = *r.jobs.Find("run");
  CHECK(next != job);
  r.store.TellAll();
  CHECK(*r.jobs.Find("run") == next);
  CHECK(r.ends == std::vector<std::string>{"run JOB_NOT_FOUND"});
}

TEST_CASE("JobDirectory: an answer that comes late brings nothing back",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  // Another replica deletes the job, which is told of before this one's own
  // call has its answer.
  r.store.on_created = [&] {
    REQUIRE(r.store.Delete({"run"}).ok());
    r.store.TellAll();
  };
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  CHECK(r.jobs.count() == 0);
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  CHECK(r.jobs.count() == 1);
}

TEST_CASE("JobDirectory: a deletion is of the life that was found",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto first = *r.jobs.Find("run");
  r.Remake("run", "them");
  CHECK(ReasonOf(r.jobs.Delete("run", 0)) == ErrorReason::kGenerationMismatch);
  CHECK(r.store.Get("run")->owner == "them");
  CHECK(first->ended().ok());  // as far as it is told
  r.store.TellAll();
  CHECK(ReasonOf(first->ended()) == ErrorReason::kJobNotFound);
  CHECK((*r.jobs.Find("run"))->record().owner == "them");
}

TEST_CASE("JobDirectory: a life of the same generation is another life",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto first = *r.jobs.Find("run");
  r.Remake("run", "");
  // This one's own call joins the new life before the deletion is told of.
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto second = *r.jobs.Find("run");
  CHECK(second->id() != first->id());
  CHECK(ReasonOf(first->ended()) == ErrorReason::kJobNotFound);
  r.store.TellAll();
  CHECK(*r.jobs.Find("run") == second);
  CHECK(second->ended().ok());
}

TEST_CASE("JobDirectory: changes while it loads are taken in after it",
          "[server][job_directory]") {
  Replica r;
  for (const char* name : {"a", "b", "c"}) {
    REQUIRE(r.store.Create(r.Wanted(name), {}).ok());
  }
  bool once = false;
  r.store.on_list = [&] {  // the page is read, and not yet taken in
    if (std::exchange(once, true)) return;
    REQUIRE(r.store.Delete({"b"}).ok());
    REQUIRE(r.store.Advance({"c", 1}, Bucket(1, 50)).ok());
    REQUIRE(r.store.Create(r.Wanted("d"), {}).ok());
    r.store.TellAll();
  };
  REQUIRE(r.jobs.LoadAll().ok());
  std::string names;
  for (const auto& job : r.jobs.List("", 9)) names += job->record().name;
  CHECK(names == "acd");
  CHECK(r.EpochOf("c") == 1);
}

TEST_CASE("JobDirectory: an epoch that is not valid is not stored",
          "[server][job_directory]") {
  Replica r;
  REQUIRE(r.jobs.LoadAll().ok());
  REQUIRE(r.jobs.Create(r.Wanted("run"), {}).ok());
  const auto job = *r.jobs.Find("run");
  const absl::Status refusal = r.jobs.Advance(job, Bucket(1, 0)).status();
  CHECK(ReasonOf(refusal) == ErrorReason::kFieldInvalid);
  CHECK(r.store.Get("run")->calibration.epoch() == 0);
  // One that another daemon stored leaves no job to plan for.
  REQUIRE(r.store.Advance({"run", 1}, Bucket(1, 0)).ok());
  r.store.TellAll();
  CHECK(r.jobs.count() == 0);
  CHECK_FALSE(job->ended().ok());
  REQUIRE(r.jobs.Delete("run", 0).ok());
}

TEST_CASE("JobDirectory: the watch ends with the directory",
          "[server][job_directory]") {
  const Logger logger{LogLevel::kError, Clock::Real()};
  Metrics metrics;
  SharedStore store;
  {
    JobDirectory jobs(&store, &logger, &metrics, [](const RegisteredJob&) {});
    REQUIRE(jobs.LoadAll().ok());
    CHECK(store.is_watched());
  }
  CHECK_FALSE(store.is_watched());
}

}  // namespace
}  // namespace skrull
