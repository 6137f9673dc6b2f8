// Time of the stores, one caller: see docs/benchmarks.md for what each row
// means. What was stored is read back and compared once, outside the timed
// loop.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "skrull/server/store.h"

namespace skrull {
namespace {

constexpr int64_t kKeptSteps = 1024;

// A fresh store with one job; its file goes away with it.
class Fixture {
 public:
  explicit Fixture(const std::string& kind) {
    std::string uri = kind;
    if (kind == "sqlite") {
      directory_ =
          (std::filesystem::temp_directory_path() / "skrull-bench-XXXXXX")
              .string();
      if (mkdtemp(directory_.data()) == nullptr)
        Fail("cannot make " + directory_);
      uri = "sqlite:" + directory_ + "/skrull.db";
    }
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(uri);
    if (!store.ok()) Fail(std::string(store.status().message()));
    store_ = *std::move(store);
    JobRecord job;
    job.name = "run";
    if (!store_->Create(job, {}).ok()) Fail("cannot create the job");
  }
  ~Fixture() {
    store_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  Store& store() { return *store_; }

  [[noreturn]] static void Fail(const std::string& problem) {
    std::cerr << "store_bench: " << problem << "\n";
    std::exit(1);
  }

 private:
  std::string directory_;
  std::unique_ptr<Store> store_;
};

PlanRecord RecordOf(int64_t step, size_t bytes) {
  PlanRecord record;
  record.key = {.job = "run", .step = step, .attempt = 0};
  record.generation = 1;
  record.request_digest = std::string(64, 'd');
  record.plan = std::string(bytes, static_cast<char>('a' + step % 26));
  return record;
}

// Commits of new steps, pruning the oldest once kKeptSteps are kept.
void Commit(benchmark::State& state, const std::string& kind) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Fixture fixture(kind);
  int64_t step = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const PlanRecord record = RecordOf(step++, bytes);
    state.ResumeTiming();
    if (!fixture.store().Commit(record, kKeptSteps).ok()) {
      Fixture::Fail("a commit failed");
    }
  }
  const PlanRecord last = RecordOf(step - 1, bytes);
  if (*fixture.store().Find(last.key, 1) != last) {
    Fixture::Fail("the last plan reads back otherwise");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Reads of one committed plan.
void Find(benchmark::State& state, const std::string& kind) {
  Fixture fixture(kind);
  const PlanRecord record = RecordOf(1, static_cast<size_t>(state.range(0)));
  if (!fixture.store().Commit(record, kKeptSteps).ok()) {
    Fixture::Fail("a commit failed");
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(fixture.store().Find(record.key, 1));
  }
  if (*fixture.store().Find(record.key, 1) != record) {
    Fixture::Fail("the plan reads back otherwise");
  }
}

// Reports of one planned step by one rank after the other.
void Report(benchmark::State& state, const std::string& kind) {
  Fixture fixture(kind);
  if (!fixture.store().Commit(RecordOf(1, 4096), kKeptSteps).ok()) {
    Fixture::Fail("a commit failed");
  }
  v1::StepReport report;
  report.set_step(1);
  report.set_outcome(v1::STEP_OUTCOME_OK);
  report.set_peak_bytes(int64_t{70} << 30);
  for (auto _ : state) {
    report.set_rank((report.rank() + 1) % 1024);
    if (!fixture.store().PutReport({"run", 1}, report, kKeptSteps).ok()) {
      Fixture::Fail("a report failed");
    }
  }
}

// 4 KB: a plan of 256 sequences; 1 MB: one of 65,536.
BENCHMARK_CAPTURE(Commit, memory, "memory")->Arg(4 << 10)->Arg(1 << 20);
BENCHMARK_CAPTURE(Commit, sqlite, "sqlite")
    ->Arg(4 << 10)
    ->Arg(1 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(Find, memory, "memory")->Arg(4 << 10)->Arg(1 << 20);
BENCHMARK_CAPTURE(Find, sqlite, "sqlite")->Arg(4 << 10)->Arg(1 << 20);
BENCHMARK_CAPTURE(Report, memory, "memory");
BENCHMARK_CAPTURE(Report, sqlite, "sqlite")->UseRealTime();

}  // namespace
}  // namespace skrull

BENCHMARK_MAIN();
