// Training cases: a layer of projections around attention, its loss and its
// gradients on several ranks, against the same on one device.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "skrull/tests/cuda/rank_pool.h"

namespace skrull::exec::testing {
namespace {

constexpr int32_t kWidth = 3;  // of a token's input

// q, k, v = input * wq, wk, wv; the loss of a label token is u . o.
struct Model {
  AttentionProblem problem;
  std::vector<double> wq, wk, wv;  // [kWidth, heads * dim]
  std::vector<double> u;           // [q_heads * dim]
};

struct Sample {
  Dense input;                 // [tokens, 1, kWidth]
  std::vector<double> labels;  // per token: 1 if it counts, else 0
};

struct Gradients {
  double loss = 0;
  std::vector<double> wq, wk, wv;
};

std::vector<double> RandomValues(std::mt19937_64* random, size_t count) {
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(*random);
  return values;
}

Model RandomModel(std::mt19937_64* random, AttentionProblem problem) {
  const auto q = static_cast<size_t>(problem.q_heads * problem.head_dim);
  const auto kv = static_cast<size_t>(problem.kv_heads * problem.head_dim);
  return {.problem = problem,
          .wq = RandomValues(random, kWidth * q),
          .wk = RandomValues(random, kWidth * kv),
          .wv = RandomValues(random, kWidth * kv),
          .u = RandomValues(random, q)};
}

AttentionProblem SmallProblem() {
  return {.dtype = DType::kFloat64,
          .q_heads = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .scale = 0.5};
}

Sample RandomSample(std::mt19937_64* random, int32_t tokens) {
  Sample sample{.input = Dense(tokens, 1, kWidth),
                .labels = std::vector<double>(static_cast<size_t>(tokens), 1)};
  sample.input.values = RandomValues(random, sample.input.values.size());
  return sample;
}

Dense Project(const Dense& input, const std::vector<double>& w, int32_t heads,
              int32_t dim) {
  Dense out(input.rows, heads, dim);
  for (int64_t r = 0; r < input.rows; ++r) {
    for (int32_t h = 0; h < heads; ++h) {
      for (int32_t c = 0; c < dim; ++c) {
        for (int32_t x = 0; x < kWidth; ++x) {
          out.at(r, h, c) += input.at(r, 0, x) *
                             w[static_cast<size_t>((x * heads + h) * dim + c)];
        }
      }
    }
  }
  return out;
}

// What attention reads and what flows back into it. `weight`: of each label
// token in the loss.
SequenceData Activations(const Model& model, const Sample& sample,
                         double weight) {
  const AttentionProblem& p = model.problem;
  SequenceData s;
  s.q = Project(sample.input, model.wq, p.q_heads, p.head_dim);
  s.k = Project(sample.input, model.wk, p.kv_heads, p.head_dim);
  s.v = Project(sample.input, model.wv, p.kv_heads, p.head_dim);
  s.d_o = Dense(sample.input.rows, p.q_heads, p.head_dim);
  for (int64_t r = 0; r < sample.input.rows; ++r) {
    for (size_t i = 0; i < model.u.size(); ++i) {
      s.d_o.values[static_cast<size_t>(r) * model.u.size() + i] =
          weight * sample.labels[static_cast<size_t>(r)] * model.u[i];
    }
  }
  return s;
}

// Adds one row's part; row(name, head, c) reads a tensor of that row.
using Read = std::function<double(int32_t head, int32_t c)>;
struct RowReads {
  Read o, dq, dk, dv;
};
void AddRow(const Model& model, const Sample& sample, int64_t position,
            double weight, const RowReads& row, Gradients* sums) {
  const AttentionProblem& p = model.problem;
  sums->wq.resize(model.wq.size());
  sums->wk.resize(model.wk.size());
  sums->wv.resize(model.wv.size());
  const double label = sample.labels[static_cast<size_t>(position)];
  for (int32_t h = 0; h < p.q_heads; ++h) {
    for (int32_t c = 0; c < p.head_dim; ++c) {
      const auto i = static_cast<size_t>(h * p.head_dim + c);
      sums->loss += weight * label * model.u[i] * row.o(h, c);
      for (int32_t x = 0; x < kWidth; ++x) {
        sums->wq[static_cast<size_t>(x) * model.u.size() + i] +=
            sample.input.at(position, 0, x) * row.dq(h, c);
      }
    }
  }
  for (int32_t h = 0; h < p.kv_heads; ++h) {
    for (int32_t c = 0; c < p.head_dim; ++c) {
      for (int32_t x = 0; x < kWidth; ++x) {
        const auto i =
            static_cast<size_t>((x * p.kv_heads + h) * p.head_dim + c);
        sums->wk[i] += sample.input.at(position, 0, x) * row.dk(h, c);
        sums->wv[i] += sample.input.at(position, 0, x) * row.dv(h, c);
      }
    }
  }
}

double LabelTokens(const std::vector<Sample>& samples) {
  double count = 0;
  for (const Sample& sample : samples) {
    for (const double label : sample.labels) count += label;
  }
  return count;
}

// One device, each sequence alone: the mean over the batch's label tokens.
Gradients OneDevice(const Model& model, const std::vector<Sample>& samples) {
  Gradients sums;
  const double weight = 1 / LabelTokens(samples);
  for (const Sample& sample : samples) {
    int64_t first = 0;  // earlier queries have no part in anything
    while (sample.labels[static_cast<size_t>(first)] == 0) ++first;
    const SequenceData s = Activations(model, sample, weight);
    const DenseResult r =
        DenseAttention(s.q, s.k, s.v, s.d_o, model.problem.scale, false, first);
    for (int64_t i = 0; i < sample.input.rows; ++i) {
      const auto at = [i](const Dense& dense) {
        return [&dense, i](int32_t h, int32_t c) { return dense.at(i, h, c); };
      };
      AddRow(model, sample, i, weight,
             {.o = at(r.o), .dq = at(r.dq), .dk = at(r.dk), .dv = at(r.dv)},
             &sums);
    }
  }
  return sums;
}

// The ranks of the plan: sums of all ranks' and micro-batches' parts, as
// gradient accumulation and the reduction over ranks make them.
Gradients OnRanks(const Model& model, const std::vector<Sample>& samples,
                  const TestPlan& plan) {
  const double weight = 1 / LabelTokens(samples);
  std::vector<SequenceData> data;
  for (const Sample& sample : samples) {
    data.push_back(Activations(model, sample, weight));
  }
  RunOptions options;
  options.executor.problem = model.problem;
  options.backend_threads = 1;
  const RunResult result = RunPlan(plan, data, options);
  for (const Status& status : result.statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  Gradients sums;
  for (size_t mb = 0; mb < plan.micro_batches.size(); ++mb) {
    for (int32_t rank = 0; rank < plan.ranks; ++rank) {
      const RankTensors& t = result.tensors[mb][static_cast<size_t>(rank)];
      int64_t row = 0;
      for (const RankSegment& segment :
           RankSegments(plan.micro_batches[mb], rank)) {
        for (const TokenRange& range : {segment.low, segment.high}) {
          for (int64_t i = range.begin; i < range.end; ++i, ++row) {
            const auto at = [row](const HostTensor& tensor) {
              return [&tensor, row](int32_t h, int32_t c) {
                return tensor.Get(row, h, c);
              };
            };
            AddRow(
                model, samples[static_cast<size_t>(segment.sequence)], i,
                weight,
                {.o = at(t.o), .dq = at(t.dq), .dk = at(t.dk), .dv = at(t.dv)},
                &sums);
          }
        }
      }
    }
  }
  return sums;
}

void CheckEqual(const Gradients& got, const Gradients& want, double margin) {
  CHECK(std::isfinite(got.loss));
  CHECK(got.loss == Approx(want.loss).margin(margin));
  for (const auto& [a, b] :
       {std::pair(&got.wq, &want.wq), std::pair(&got.wk, &want.wk),
        std::pair(&got.wv, &want.wv)}) {
    REQUIRE(a->size() == b->size());
    for (size_t i = 0; i < a->size(); ++i) {
      CHECK((*a)[i] == Approx((*b)[i]).margin(margin));
    }
  }
}

}  // namespace

TEST_CASE("Cases: five sequences in one buffer on two ranks",
          "[executor][cases]") {
  std::mt19937_64 random(31);
  const Model model = RandomModel(&random, SmallProblem());
  std::vector<Sample> samples;
  for (const int32_t tokens : {12, 5, 31, 1, 18}) {
    samples.push_back(RandomSample(&random, tokens));
  }
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{0, 12, 0, 1},
                                         {1, 5, 1, 1},
                                         {2, 31, 0, 2},
                                         {3, 1, 1, 1},
                                         {4, 18, 0, 2}}}};
  CheckEqual(OnRanks(model, samples, plan), OneDevice(model, samples), 1e-11);
}

// The mean is over the batch's label tokens, not over micro-batches' means.
TEST_CASE("Cases: micro-batches of 10 and 1000 label tokens",
          "[executor][cases]") {
  std::mt19937_64 random(32);
  Model model = RandomModel(&random, SmallProblem());
  // Losses that are known: v and so o are the constant 2 in the first sequence
  // and 1 in the second, and u sums to 1.
  std::vector<Sample> samples = {RandomSample(&random, 12),
                                 RandomSample(&random, 1040)};
  const double heights[] = {2, 1};
  for (size_t i = 0; i < 2; ++i) {
    for (int64_t r = 0; r < samples[i].input.rows; ++r) {
      samples[i].input.at(r, 0, 0) = heights[i];
    }
  }
  for (size_t i = 0; i < model.wv.size(); ++i) {
    model.wv[i] = i < 4 ? 1 : 0;  // the first of the inputs
  }
  double sum = 0;
  for (const double u : model.u) sum += u;
  for (double& u : model.u) u /= sum;
  std::fill_n(samples[0].labels.begin(), 2, 0.0);   // 10 are left
  std::fill_n(samples[1].labels.begin(), 40, 0.0);  // 1000 are left
  const TestPlan plan{.ranks = 2,
                      .micro_batches = {{{0, 12, 1, 1}}, {{1, 1040, 0, 2}}}};
  const Gradients got = OnRanks(model, samples, plan);
  CHECK(got.loss == Approx(1020.0 / 1010.0));
  CheckEqual(got, OneDevice(model, samples), 1e-11);
}

TEST_CASE("Cases: only the last 100 of 8192 tokens are labelled",
          "[executor][cases]") {
  std::mt19937_64 random(33);
  AttentionProblem problem = SmallProblem();
  problem.q_heads = 1;
  const Model model = RandomModel(&random, problem);
  std::vector<Sample> samples = {RandomSample(&random, 8192)};
  std::fill_n(samples[0].labels.begin(), 8092, 0.0);
  const TestPlan plan{.ranks = 8, .micro_batches = {{{0, 8192, 0, 8}}}};
  CheckEqual(OnRanks(model, samples, plan), OneDevice(model, samples), 1e-10);
}

TEST_CASE("Cases: steps of 1, 3 and 2 micro-batches accumulate",
          "[executor][cases]") {
  std::mt19937_64 random(34);
  const Model model = RandomModel(&random, SmallProblem());
  for (const int32_t count : {1, 3, 2}) {
    TestPlan plan{.ranks = 2, .micro_batches = {}};
    std::vector<Sample> samples;
    for (int32_t mb = 0; mb < count; ++mb) {
      Placements placements;
      for (const int32_t degree : {1, 2}) {
        const auto tokens = static_cast<int32_t>(3 + random() % 30);
        placements.push_back({static_cast<int32_t>(samples.size()), tokens,
                              degree == 1 ? mb % 2 : 0, degree});
        samples.push_back(RandomSample(&random, tokens));
      }
      plan.micro_batches.push_back(placements);
    }
    CheckEqual(OnRanks(model, samples, plan), OneDevice(model, samples), 1e-11);
  }
}

}  // namespace skrull::exec::testing
