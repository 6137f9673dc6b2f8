// The example trainer: what it learns depends on the batch alone, not on where
// a plan puts its sequences.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/examples/cpu_trainer/rank_threads.h"
#include "skrull/cuda/examples/cpu_trainer/rank_trainer.h"
#include "skrull/cuda/examples/cpu_trainer/step_time.h"
#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::examples {
namespace {

using exec::Status;
using exec::StatusCode;
using exec::testing::TestPlan;

struct PlannedStep {
  TestPlan plan;
  Batch batch;
};

struct Trained {
  std::vector<double> losses;
  std::vector<Floats> gradients;  // of each step
};

TrainerOptions SmallModel() {
  TrainerOptions options;
  options.model = {.layer_count = 2,
                   .hidden_size = 12,
                   .q_heads = 4,
                   .kv_heads = 2,
                   .head_dim = 4,
                   .intermediate_size = 20,
                   .vocab_size = 17};
  return options;
}

// All steps on the plans' ranks; every rank must end with the same.
Trained Train(const TrainerOptions& options,
              const std::vector<PlannedStep>& steps) {
  Trained trained;
  std::mutex mutex;
  std::vector<Floats> weights;  // of each rank, at the end
  const Status status = RunRanks(
      steps[0].plan.ranks, [&](int32_t rank, const RankLinks& links) -> Status {
        auto trainer = RankTrainer::Create(options, links);
        SKRULL_EXEC_RETURN_IF_ERROR(trainer.status());
        for (const PlannedStep& step : steps) {
          const auto result =
              (*trainer)->Step(step.plan.ForRank(rank), step.batch);
          SKRULL_EXEC_RETURN_IF_ERROR(result.status());
          if (rank != 0) continue;
          trained.losses.push_back(result->loss);
          trained.gradients.push_back((*trainer)->gradients().values());
        }
        {
          const std::lock_guard lock(mutex);
          weights.push_back((*trainer)->weights().values());
        }
        return links.agreement->Agree("done");
      });
  INFO(status.ToString());
  REQUIRE(status.ok());
  for (const Floats& one : weights) REQUIRE(one == weights[0]);
  return trained;
}

double Norm(const Floats& values) {
  double squares = 0;
  for (const float value : values) squares += double(value) * double(value);
  return std::sqrt(squares);
}

double Difference(const Floats& a, const Floats& b) {
  Floats difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return Norm(difference) / Norm(b);
}

// Every sequence in a micro-batch of its own, on one rank.
TestPlan Alone(const Batch& batch) {
  TestPlan plan{.ranks = 1, .micro_batches = {}};
  int32_t sequence = 0;
  for (const int64_t length : batch.lengths()) {
    plan.micro_batches.push_back(
        {{sequence++, static_cast<int32_t>(length), 0, 1}});
  }
  return plan;
}

void CheckSame(const Trained& got, const Trained& want) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    INFO("step " << i);
    REQUIRE(std::isfinite(want.losses[i]));
    CHECK(got.losses[i] == Approx(want.losses[i]).epsilon(1e-6));
    CHECK(Norm(want.gradients[i]) > 1e-3);
    CHECK(Difference(got.gradients[i], want.gradients[i]) < 1e-5);
  }
}

}  // namespace

TEST_CASE("Trainer: gradients are those of the loss", "[trainer]") {
  // Along random directions, against differences of the loss itself.
  const TrainerOptions options = SmallModel();
  const Batch batch = MakeBatch({9, 5}, 3, options.model.vocab_size);
  const TestPlan plan = Alone(batch);
  class Exact final : public AttentionCalls {
   public:
    Exact(exec::Executor* executor, const exec::Step* step, int32_t index,
          exec::Device* device, exec::Stream stream)
        : executor_(executor),
          step_(step),
          index_(index),
          device_(device),
          stream_(stream) {}
    Status Forward(const exec::ForwardTensors& tensors) override {
      SKRULL_EXEC_RETURN_IF_ERROR(
          executor_->Forward(*step_, index_, tensors, stream_));
      return device_->Synchronize(stream_);
    }
    Status Backward(const exec::BackwardTensors& tensors) override {
      SKRULL_EXEC_RETURN_IF_ERROR(
          executor_->Backward(*step_, index_, tensors, stream_));
      return device_->Synchronize(stream_);
    }

   private:
    exec::Executor* executor_;
    const exec::Step* step_;
    int32_t index_;
    exec::Device* device_;
    exec::Stream stream_;
  };
  exec::InProcessPool pool(1);
  exec::CpuDevice device;
  const auto backend = exec::CreateCpuAttention(1);
  exec::ExecutorOptions with;
  with.problem = {.dtype = exec::DType::kFloat32,
                  .q_heads = options.model.q_heads,
                  .kv_heads = options.model.kv_heads,
                  .head_dim = options.model.head_dim,
                  .scale = 0.5};
  const auto executor =
      exec::Executor::Create(with, {.device = &device,
                                    .backend = backend->get(),
                                    .communicators = pool.communicators(0),
                                    .agreement = pool.agreement(0)});
  REQUIRE(executor.ok());
  const RankPlan mine = plan.ForRank(0);
  const auto step = (*executor)->Prepare(mine);
  REQUIRE(step.ok());
  const exec::Stream stream =
      *device.CreateStream(exec::StreamPriority::kNormal);
  const auto evaluate = [&](Parameters* weights, Parameters* gradients) {
    double loss = 0;
    for (size_t i = 0; i < mine.micro_batches.size(); ++i) {
      Exact calls(executor->get(), &*step, static_cast<int32_t>(i), &device,
                  stream);
      REQUIRE(RunMicroBatch(options.model, weights,
                            RowsOf(batch, mine.micro_batches[i]), 1, &calls,
                            gradients, &loss)
                  .ok());
    }
    return loss;
  };
  Parameters weights(options.model);
  weights.Initialize(5);
  Parameters gradients(options.model);
  evaluate(&weights, &gradients);
  std::mt19937 random(1);
  const size_t size = weights.values().size();
  for (int trial = 0; trial < 20; ++trial) {
    // One kind of weight at a time, so that no part's mistake drowns.
    const size_t first = random() % size;
    const size_t last = std::min(size, first + 1 + random() % 60);
    Floats direction(size);
    double slope = 0;
    for (size_t i = first; i < last; ++i) {
      direction[i] = random() % 2 == 0 ? 1.0F : -1.0F;
      slope += double(direction[i]) * double(gradients.values()[i]);
    }
    constexpr float kStep = 4e-3F;
    Parameters unused(options.model);
    Parameters up = weights;
    Parameters down = weights;
    for (size_t i = 0; i < size; ++i) {
      up.values()[i] += kStep * direction[i];
      down.values()[i] -= kStep * direction[i];
    }
    const double measured =
        (evaluate(&up, &unused) - evaluate(&down, &unused)) / (2 * kStep);
    INFO("trial " << trial << ", weights " << first << " to " << last);
    CHECK(measured == Approx(slope).epsilon(0.01).margin(0.02));
  }
  device.DestroyStream(stream);
}

TEST_CASE("Trainer: five sequences in one buffer are five sequences",
          "[trainer]") {
  const TrainerOptions options = SmallModel();
  const Batch batch = MakeBatch({13, 6, 21, 3, 8}, 0, options.model.vocab_size);
  const Trained want = Train(options, {{Alone(batch), batch}});
  for (const auto& placements : {exec::testing::Placements{{0, 13, 0, 1},
                                                           {1, 6, 1, 1},
                                                           {2, 21, 0, 2},
                                                           {3, 3, 1, 1},
                                                           {4, 8, 0, 2}},
                                 exec::testing::Placements{{0, 13, 0, 2},
                                                           {1, 6, 0, 2},
                                                           {2, 21, 0, 2},
                                                           {3, 3, 0, 2},
                                                           {4, 8, 0, 2}},
                                 exec::testing::Placements{{0, 13, 0, 1},
                                                           {1, 6, 0, 1},
                                                           {2, 21, 0, 1},
                                                           {3, 3, 0, 1},
                                                           {4, 8, 0, 1}}}) {
    for (const auto exchange :
         {exec::Exchange::kAllGather, exec::Exchange::kRing}) {
      TrainerOptions one = options;
      one.exchange = exchange;
      CheckSame(
          Train(one, {{{.ranks = 2, .micro_batches = {placements}}, batch}}),
          want);
    }
  }
}

TEST_CASE("Trainer: a label weighs the same in any micro-batch", "[trainer]") {
  const TrainerOptions options = SmallModel();
  const int32_t vocab = options.model.vocab_size;
  // 10 and 1000 labels.
  const Batch both = MakeBatch({11, 1001}, 7, vocab);
  REQUIRE(both.label_count == 1010);
  Batch first = both;
  first.tokens.pop_back();
  first.label_count = 10;
  Batch second = both;
  second.tokens.erase(second.tokens.begin());
  second.first_label.erase(second.first_label.begin());
  second.label_count = 1000;
  const double loss_first = Train(options, {{Alone(first), first}}).losses[0];
  const double loss_second =
      Train(options, {{Alone(second), second}}).losses[0];
  const TestPlan two = {.ranks = 2,
                        .micro_batches = {{{0, 11, 1, 1}}, {{1, 1001, 0, 2}}}};
  const Trained got = Train(options, {{two, both}});
  CHECK(got.losses[0] ==
        Approx((10 * loss_first + 1000 * loss_second) / 1010).epsilon(1e-6));
  // The mean of the micro-batches' means is something else.
  CHECK(std::abs(got.losses[0] - (loss_first + loss_second) / 2) > 1e-3);
  CheckSame(got, Train(options, {{Alone(both), both}}));
}

TEST_CASE("Trainer: ranks without a label train all the same", "[trainer]") {
  TrainerOptions options;
  options.model = {.layer_count = 1,
                   .hidden_size = 8,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .head_dim = 8,
                   .intermediate_size = 8,
                   .vocab_size = 11};
  Batch batch = MakeBatch({2048}, 1, options.model.vocab_size);
  batch.first_label[0] = 2048 - 101;
  batch.label_count = 100;
  const TestPlan eight = {.ranks = 8, .micro_batches = {{{0, 2048, 0, 8}}}};
  // Labels are on rank 0 alone, whose high chunk ends the sequence.
  CheckSame(Train(options, {{eight, batch}}),
            Train(options, {{Alone(batch), batch}}));
}

TEST_CASE("Trainer: accumulation over micro-batches is one large batch",
          "[trainer]") {
  const TrainerOptions options = SmallModel();
  const std::vector<std::vector<exec::testing::Placements>> shapes = {
      {{{0, 9, 0, 2}, {1, 4, 1, 1}, {2, 7, 0, 1}}},
      {{{0, 9, 0, 1}}, {{1, 4, 0, 2}}, {{2, 7, 1, 1}}},
      {{{2, 7, 0, 2}, {0, 9, 0, 2}}, {{1, 4, 0, 1}}}};
  std::vector<PlannedStep> steps;
  std::vector<PlannedStep> large;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Batch batch =
        MakeBatch({9, 4, 7}, static_cast<int64_t>(i), options.model.vocab_size);
    steps.push_back({{.ranks = 2, .micro_batches = shapes[i]}, batch});
    large.push_back(
        {{.ranks = 1,
          .micro_batches = {{{0, 9, 0, 1}, {1, 4, 0, 1}, {2, 7, 0, 1}}}},
         batch});
  }
  CheckSame(Train(options, steps), Train(options, large));
}

TEST_CASE("Trainer: another plan on one rank stops all, and the next step goes",
          "[trainer]") {
  const TrainerOptions options = SmallModel();
  const Batch batch = MakeBatch({9, 4}, 0, options.model.vocab_size);
  const TestPlan plan = {.ranks = 3,
                         .micro_batches = {{{0, 9, 0, 3}, {1, 4, 1, 1}}}};
  const auto begin = std::chrono::steady_clock::now();
  const Status status =
      RunRanks(3, [&](int32_t rank, const RankLinks& links) -> Status {
        auto trainer = RankTrainer::Create(options, links);
        SKRULL_EXEC_RETURN_IF_ERROR(trainer.status());
        RankPlan mine = plan.ForRank(rank);
        RankPlan other = mine;
        if (rank == 1) other.digest = "other";
        const auto refused = (*trainer)->Step(other, batch);
        if (refused.status().code() != StatusCode::kFailedPrecondition) {
          return {StatusCode::kInternal, refused.status().ToString()};
        }
        SKRULL_EXEC_RETURN_IF_ERROR((*trainer)->Step(mine, batch).status());
        return links.agreement->Agree("done");
      });
  INFO(status.ToString());
  CHECK(status.ok());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
}

TEST_CASE("StepSeconds: ranks that a block joins wait for each other",
          "[trainer]") {
  // Four DP ranks of one rank. Rank 0 and 1 share a sequence in the second
  // micro-batch; rank 3 has nothing in the first.
  const TestPlan plan = {
      .ranks = 4,
      .micro_batches = {{{0, 5, 0, 1}, {1, 5, 1, 1}, {2, 5, 2, 1}},
                        {{3, 9, 0, 2}, {4, 5, 2, 1}, {5, 5, 3, 1}}}};
  std::vector<RankPlan> plans;
  for (int32_t rank = 0; rank < 4; ++rank) plans.push_back(plan.ForRank(rank));
  const auto rest = [](double seconds) {
    RankSeconds rank;
    rank.rest = seconds;
    return rank;
  };
  std::vector<std::vector<RankSeconds>> seconds = {{rest(1), rest(2)},
                                                   {rest(5), rest(1)},
                                                   {rest(3), rest(3)},
                                                   {rest(9), rest(4)}};
  // Ranks 0 and 1: 5, then 2. Rank 2: 3 + 3. Rank 3: 4.
  CHECK(StepSeconds(plans, seconds, 1) == Approx(7));
  // As one DP rank of four: 5 + 4.
  CHECK(StepSeconds(plans, seconds, 4) == Approx(9));
  // The exchange hides behind local attention, and only behind that.
  seconds[1][0] = {
      .local_attention = 2, .sharded_attention = 1, .exchange = 6, .rest = 0.5};
  CHECK(StepSeconds(plans, seconds, 1) == Approx(9.5));
}

}  // namespace skrull::examples
