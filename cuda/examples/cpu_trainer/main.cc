// Trains a small decoder on CPU ranks, planned by a running daemon, once under
// each policy, and checks that the plan changes the time of a step and not what
// is learnt.
//
//   skrulld &
//   skrull_cpu_trainer --server 127.0.0.1:7419
//       --lengths deploy/examples/lengths/wikipedia.txt --scale 64
//
// Exit 0: trained, with the same losses under every policy; 1: not; 2: usage.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "skrull/client/planner_client.h"
#include "skrull/cuda/examples/cpu_trainer/batch.h"
#include "skrull/cuda/examples/cpu_trainer/job_text.h"
#include "skrull/cuda/examples/cpu_trainer/rank_threads.h"
#include "skrull/cuda/examples/cpu_trainer/rank_trainer.h"
#include "skrull/cuda/examples/cpu_trainer/step_log.h"
#include "skrull/cuda/examples/cpu_trainer/step_time.h"
#include "skrull/cuda/host/host_pool.h"

namespace skrull::examples {
namespace {

// Float32 sums in another order, over a few steps.
constexpr double kLossTolerance = 1e-4;

struct Settings {
  std::string server = "127.0.0.1:7419";
  std::string lengths_file;
  int64_t scale = 64;
  int32_t batch_size = 32;
  int64_t steps = 4;
  bool ring = false;
  // Ranks as processes: start them all, or be this one of them.
  bool processes = false;
  int32_t rank = -1;
  std::string run;  // what the processes of one run have in common
  std::string host = "127.0.0.1";
  std::string log_file;
  TrainerOptions trainer;
  JobShape shape = {.dp_size = 2, .cp_size = 2, .bucket_size_tokens = 1024};

  int32_t ranks() const { return shape.dp_size * shape.cp_size; }
};

// One policy's training.
struct Outcome {
  std::vector<double> losses;   // of each step
  double wall_seconds = 0;      // of all steps
  double parallel_seconds = 0;  // the same with a core for each thread
  double predicted_seconds = 0;
  int64_t micro_batches = 0;
};

exec::Status ToExec(const absl::Status& status) {
  return {exec::StatusCode::kFailedPrecondition, status.ToString()};
}

// The lengths of one step's global batch.
std::vector<int64_t> LengthsOf(const Settings& settings,
                               const std::vector<int64_t>& lengths,
                               int64_t step) {
  const auto size = static_cast<size_t>(settings.batch_size);
  const auto first = lengths.begin() +
                     static_cast<ptrdiff_t>((static_cast<size_t>(step) * size) %
                                            (lengths.size() - size + 1));
  return {first, first + settings.batch_size};
}

class Training {
 public:
  Training(const Settings& settings, const std::vector<int64_t>& lengths,
           PlannerClient* client, std::string policy)
      : settings_(settings),
        lengths_(lengths),
        client_(client),
        policy_(std::move(policy)),
        job_(absl::StrCat("cpu-trainer-", policy_, "-", settings.run)),
        plans_(static_cast<size_t>(settings.ranks())),
        seconds_(plans_.size()) {}

  absl::Status Run(Outcome* outcome) {
    const auto created = client_->CreateJob(
        job_, JobText(settings_.trainer.model, settings_.shape, {}));
    if (!created.ok()) return created.status();
    const exec::Status trained =
        settings_.rank < 0 ? RunThreads(outcome) : RunProcess(outcome);
    const absl::Status deleted =
        settings_.rank <= 0 ? client_->DeleteJob(job_) : absl::OkStatus();
    if (!trained.ok()) {
      return absl::AbortedError(
          absl::StrCat(policy_, ": ", trained.ToString()));
    }
    return deleted;
  }

 private:
  exec::Status RunThreads(Outcome* outcome) {
    return RunRanks(settings_.ranks(),
                    [&](int32_t rank, const RankLinks& links) {
                      return RunRank(rank, links, outcome);
                    });
  }

  // This process is one rank; the daemon brings it together with the others.
  exec::Status RunProcess(Outcome* outcome) {
    const exec::Rendezvous meet =
        [&](const std::string& offer) -> exec::Result<std::string> {
      const absl::StatusOr<std::string> answer =
          client_->Rendezvous({.job = job_,
                               .key = "ranks",
                               .size = settings_.ranks(),
                               .rank = settings_.rank,
                               .offer = offer});
      if (!answer.ok()) return ToExec(answer.status());
      return *answer;
    };
    exec::HostPoolOptions options;
    options.rank = settings_.rank;
    options.size = settings_.ranks();
    options.host = settings_.host;
    options.time_limit = std::chrono::minutes(10);
    const auto pool = exec::HostPool::Create(options, meet);
    SKRULL_EXEC_RETURN_IF_ERROR(pool.status());
    const exec::Status status =
        RunRank(settings_.rank,
                {(*pool)->communicators(), (*pool)->agreement()}, outcome);
    if (!status.ok()) (*pool)->communicators()->Abort(status);
    return status;
  }

  // Every rank asks for the plan of the batch it knows; the first one to ask
  // has it committed, and all get the same bytes.
  exec::Status RunRank(int32_t rank, const RankLinks& links, Outcome* outcome) {
    auto trainer = RankTrainer::Create(settings_.trainer, links);
    SKRULL_EXEC_RETURN_IF_ERROR(trainer.status());
    for (int64_t step = 0; step < settings_.steps; ++step) {
      const std::vector<int64_t> lengths = LengthsOf(settings_, lengths_, step);
      const Batch batch =
          MakeBatch(lengths, step, settings_.trainer.model.vocab_size);
      const absl::StatusOr<PlanResult> plan = client_->PlanBatch(
          {.job = job_, .step = step, .lengths = lengths, .policy = policy_});
      // Without a plan this rank still meets the others, so that all raise.
      RankPlan mine;
      mine.rank = rank;
      absl::Status planned = plan.status();
      if (plan.ok()) {
        const absl::StatusOr<RankPlan> share = RankPlanOf(*plan, rank);
        planned = share.status();
        if (share.ok()) mine = *share;
      }
      const auto begin = std::chrono::steady_clock::now();
      exec::Result<StepResult> result = (*trainer)->Step(mine, batch);
      const std::chrono::duration<double> wall =
          std::chrono::steady_clock::now() - begin;
      if (!planned.ok()) return ToExec(planned);
      SKRULL_EXEC_RETURN_IF_ERROR(result.status());
      const auto r = static_cast<size_t>(rank);
      plans_[r].push_back(mine);
      seconds_[r].push_back(result->micro_batches);
      if (rank != 0) continue;
      outcome->losses.push_back(result->loss);
      outcome->wall_seconds += wall.count();
      outcome->predicted_seconds += plan->figures.predicted_seconds;
      outcome->micro_batches += plan->figures.micro_batch_count;
    }
    // Another rank may still be in its last step.
    SKRULL_EXEC_RETURN_IF_ERROR(links.agreement->Agree("done"));
    if (settings_.rank < 0 && rank == 0) {
      AddParallelSeconds(outcome);
      SKRULL_EXEC_RETURN_IF_ERROR(WriteLog());
    }
    return links.agreement->Agree("done");
  }

  exec::Status WriteLog() const {
    if (settings_.log_file.empty()) return {};
    std::ofstream log(settings_.log_file, std::ios::app);
    for (size_t r = 0; r < plans_.size(); ++r) {
      for (size_t step = 0; step < plans_[r].size(); ++step) {
        WriteStep(plans_[r][step], seconds_[r][step], &log);
      }
    }
    log.close();
    if (log) return {};
    return {exec::StatusCode::kInternal,
            settings_.log_file + " cannot be written"};
  }

  void AddParallelSeconds(Outcome* outcome) const {
    for (size_t step = 0; step < plans_[0].size(); ++step) {
      std::vector<RankPlan> plans;
      std::vector<std::vector<RankSeconds>> seconds;
      for (size_t r = 0; r < plans_.size(); ++r) {
        plans.push_back(plans_[r][step]);
        seconds.push_back(seconds_[r][step]);
      }
      outcome->parallel_seconds +=
          StepSeconds(plans, seconds, settings_.shape.cp_size);
    }
  }

  const Settings& settings_;
  const std::vector<int64_t>& lengths_;
  PlannerClient* const client_;
  const std::string policy_;
  const std::string job_;
  // Of each rank, each step. A rank writes its own; rank 0 reads all at the
  // end.
  std::vector<std::vector<RankPlan>> plans_;
  std::vector<std::vector<std::vector<RankSeconds>>> seconds_;
};

// The largest relative difference of two policies' losses.
double Difference(const Outcome& a, const Outcome& b) {
  double most = 0;
  for (size_t i = 0; i < a.losses.size(); ++i) {
    most = std::max(
        most, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  }
  return most;
}

absl::Status Compare(const Settings& settings) {
  const auto lengths = ReadLengths(settings.lengths_file, settings.scale);
  if (!lengths.ok()) return lengths.status();
  if (static_cast<int64_t>(lengths->size()) < settings.batch_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(settings.lengths_file, " has only ", lengths->size(),
                     " lengths, fewer than a batch"));
  }
  const auto client = PlannerClient::Create({.address = settings.server});
  if (!client.ok()) return client.status();
  const bool prints = settings.rank <= 0;
  if (prints) {
    std::printf(
        "%d ranks (dp %d, cp %d) as %s, %lld steps of %d sequences\n\n"
        "| policy | first loss | last loss | micro-batches a step | "
        "seconds a step | with a core a thread |\n|---|--:|--:|--:|--:|--:|\n",
        settings.ranks(), settings.shape.dp_size, settings.shape.cp_size,
        settings.rank < 0 ? "threads" : "processes",
        static_cast<long long>(settings.steps), settings.batch_size);
  }
  std::vector<Outcome> outcomes;
  double difference = 0;
  for (const char* policy :
       {"POLICY_STATIC_CP", "POLICY_SKRULL", "POLICY_OPTIMIZED"}) {
    Outcome outcome;
    const absl::Status trained =
        Training(settings, *lengths, client->get(), policy).Run(&outcome);
    if (!trained.ok()) return trained;
    if (!prints) continue;
    const auto steps = static_cast<double>(settings.steps);
    std::printf(
        "| %s | %.6f | %.6f | %.1f | %.4f | %s |\n", policy,
        outcome.losses.front(), outcome.losses.back(),
        static_cast<double>(outcome.micro_batches) / steps,
        outcome.wall_seconds / steps,
        settings.rank < 0
            ? absl::StrFormat("%.4f", outcome.parallel_seconds / steps).c_str()
            : "-");
    outcomes.push_back(outcome);
    difference = std::max(difference, Difference(outcome, outcomes[0]));
  }
  if (!prints) return absl::OkStatus();
  std::printf("\nlargest relative difference of a loss: %.2g\n", difference);
  // A NaN is no agreement either.
  if (!(difference <= kLossTolerance)) {
    return absl::InternalError("the policies' losses differ");
  }
  return absl::OkStatus();
}

// Starts this program once a rank, and waits for all. Ranks that miss one that
// failed end by themselves.
absl::Status RunProcesses(const Settings& settings, int argc, char** argv) {
  std::vector<pid_t> children;
  absl::Status status;
  for (int32_t rank = 0; rank < settings.ranks(); ++rank) {
    std::vector<std::string> texts(argv, argv + argc);
    texts.push_back(absl::StrCat("--rank=", rank));
    texts.push_back(absl::StrCat("--run=", getpid()));
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    const int error = posix_spawn(&child, "/proc/self/exe", nullptr, nullptr,
                                  arguments.data(), environ);
    if (error != 0) {
      status = absl::ErrnoToStatus(error, "cannot start a rank");
      break;
    }
    children.push_back(child);
  }
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int ended = 0;
    (void)waitpid(children[rank], &ended, 0);
    if (status.ok() && !(WIFEXITED(ended) && WEXITSTATUS(ended) == 0)) {
      status = absl::AbortedError(absl::StrCat("rank ", rank, " failed"));
    }
  }
  return status;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a small decoder on CPU ranks under several policies.",
               "skrull_cpu_trainer");
  app.add_option("--server", settings.server, "HOST:PORT of skrulld")
      ->capture_default_str();
  app.add_option("--lengths", settings.lengths_file,
                 "File with a length a line")
      ->required();
  app.add_option("--scale", settings.scale, "Divides the lengths")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--batch-size", settings.batch_size, "Sequences a step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--steps", settings.steps, "Optimizer steps a policy")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--dp", settings.shape.dp_size, "Data-parallel ranks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--cp", settings.shape.cp_size, "Context-parallel ranks")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--bucket", settings.shape.bucket_size_tokens,
                 "Tokens a rank holds in one micro-batch")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--layers", settings.trainer.model.layer_count, "Layers")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--ring", settings.ring, "Exchange K, V around a ring");
  CLI::Option* const processes =
      app.add_flag("--processes", settings.processes,
                   "Ranks are processes of this machine, not threads");
  app.add_option("--log", settings.log_file,
                 "Append what micro-batches took, for skrull-profile "
                 "--from-log")
      ->excludes(processes);
  app.add_option("--rank", settings.rank,
                 "Be this rank alone, and meet the others of the same --run")
      ->check(CLI::Range(0, 64 * 64 - 1))
      ->excludes("--log");
  app.add_option("--run", settings.run, "Name of a run of several processes");
  app.add_option("--host", settings.host,
                 "With --rank: this machine, as the others reach it")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (settings.ring) settings.trainer.exchange = exec::Exchange::kRing;
  if (settings.run.empty()) settings.run = absl::StrCat(getpid());
  const absl::Status status = settings.processes && settings.rank < 0
                                  ? RunProcesses(settings, argc, argv)
                                  : Compare(settings);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace skrull::examples

int main(int argc, char** argv) { return skrull::examples::Main(argc, argv); }
