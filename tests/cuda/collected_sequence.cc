#include "skrull/tests/cuda/collected_sequence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace skrull::exec::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void TakeRow(const HostTensor& tensor, int64_t row, int64_t position,
             Dense* to) {
  for (int32_t h = 0; h < to->heads; ++h) {
    for (int32_t c = 0; c < to->dim; ++c) {
      to->at(position, h, c) = tensor.Get(row, h, c);
    }
  }
}

double Error(const Dense& got, const Dense& want) {
  double most = 1;
  for (const double value : want.values) most = std::max(most, std::abs(value));
  double error = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const double off = std::abs(got.values[i] - want.values[i]) / most;
    error = std::isfinite(off) ? std::max(error, off) : kInfinity;
  }
  return error;
}

void AddSquares(const Dense& got, const Dense& want, Errors* errors) {
  for (size_t i = 0; i < want.values.size(); ++i) {
    const double off = got.values[i] - want.values[i];
    errors->kv_off2 += off * off;
    errors->kv_all2 += want.values[i] * want.values[i];
  }
}

}  // namespace

CollectedSequence::CollectedSequence(const AttentionProblem& p, int64_t tokens)
    : seen_(static_cast<size_t>(tokens)) {
  values_.o = Dense(tokens, p.q_heads, p.head_dim);
  values_.lse = Dense(tokens, p.q_heads, 1);
  values_.dq = Dense(tokens, p.q_heads, p.head_dim);
  values_.dk = Dense(tokens, p.kv_heads, p.head_dim);
  values_.dv = Dense(tokens, p.kv_heads, p.head_dim);
}

void CollectedSequence::Take(const RankTensors& t, int64_t row,
                             int64_t position) {
  ++seen_[static_cast<size_t>(position)];
  TakeRow(t.o, row, position, &values_.o);
  TakeRow(t.lse, row, position, &values_.lse);
  TakeRow(t.dq, row, position, &values_.dq);
  TakeRow(t.dk, row, position, &values_.dk);
  TakeRow(t.dv, row, position, &values_.dv);
}

void CollectedSequence::Compare(const SequenceData& data,
                                const AttentionProblem& problem,
                                Errors* errors) const {
  const DenseResult want =
      DenseAttention(data.q, data.k, data.v, data.d_o, problem.scale);
  const bool complete =
      std::ranges::all_of(seen_, [](int32_t times) { return times == 1; });
  const auto widen = [&](const Dense& got, const Dense& wanted, double* error) {
    *error = std::max(*error, complete ? Error(got, wanted) : kInfinity);
  };
  widen(values_.o, want.o, &errors->o);
  widen(values_.lse, want.lse, &errors->lse);
  widen(values_.dq, want.dq, &errors->dq);
  widen(values_.dk, want.dk, &errors->dk);
  widen(values_.dv, want.dv, &errors->dv);
  AddSquares(values_.dk, want.dk, errors);
  AddSquares(values_.dv, want.dv, errors);
}

}  // namespace skrull::exec::testing
