#include "skrull/planner/least_squares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace skrull {
namespace {

using Matrix = std::array<Unknowns, kMaxUnknowns>;

// The normal equations over columns scaled to one size, so that "nearly
// dependent" has a meaning.
struct NormalEquations {
  Unknowns size = {};  // of each column; 1 for a column of zeros
  Matrix a = {};
  Unknowns b = {};
};

NormalEquations NormalEquationsOf(std::span<const Observation> observations) {
  NormalEquations normal;
  for (const Observation& o : observations) {
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      normal.size[i] += o.weight * o.x[i] * o.weight * o.x[i];
    }
  }
  for (double& s : normal.size) s = s > 0 ? std::sqrt(s) : 1;
  for (const Observation& o : observations) {
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      const double xi = o.weight * o.x[i] / normal.size[i];
      normal.b[i] += xi * o.weight * o.y;
      for (size_t j = 0; j < kMaxUnknowns; ++j) {
        normal.a[i][j] += xi * o.weight * o.x[j] / normal.size[j];
      }
    }
  }
  return normal;
}

// Solves the normal equations for the unknowns in `set`, a bit each, by
// Gaussian elimination. False if they are (nearly) dependent.
bool Solve(Matrix a, Unknowns b, unsigned set, Unknowns* solution) {
  solution->fill(0);
  std::vector<size_t> used;
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    if ((set >> i & 1U) != 0) used.push_back(i);
  }
  for (size_t k = 0; k < used.size(); ++k) {
    const size_t p = used[k];
    if (!(a[p][p] > 0)) return false;
    const double pivot = a[p][p];
    for (size_t l = k + 1; l < used.size(); ++l) {
      const size_t r = used[l];
      const double before = a[r][r];
      const double factor = a[r][p] / pivot;
      for (const size_t c : used) a[r][c] -= factor * a[p][c];
      b[r] -= factor * b[p];
      if (!(a[r][r] > 1e-12 * before)) return false;
    }
  }
  for (size_t k = used.size(); k-- > 0;) {
    double rest = b[used[k]];
    for (size_t l = k + 1; l < used.size(); ++l) {
      rest -= a[used[k]][used[l]] * (*solution)[used[l]];
    }
    (*solution)[used[k]] = rest / a[used[k]][used[k]];
  }
  return true;
}

double SquaredError(std::span<const Observation> observations,
                    const NormalEquations& normal, const Unknowns& solution) {
  double error = 0;
  for (const Observation& o : observations) {
    double rest = o.y;
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      rest -= solution[i] * o.x[i] / normal.size[i];
    }
    error += o.weight * rest * o.weight * rest;
  }
  return error;
}

// Diagonal of the inverse of `a`, restricted to `set`, times the variance.
Unknowns StandardErrors(const Matrix& a, unsigned set, double variance) {
  Unknowns errors = {};
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    if ((set >> i & 1U) == 0) continue;
    Unknowns unit = {};
    unit[i] = 1;
    Unknowns column;
    errors[i] = Solve(a, unit, set, &column)
                    ? std::sqrt(variance * std::max(0.0, column[i]))
                    : std::numeric_limits<double>::infinity();
  }
  return errors;
}

}  // namespace

LeastSquares NonNegativeLeastSquares(
    std::span<const Observation> observations) {
  const NormalEquations normal = NormalEquationsOf(observations);
  LeastSquares best;
  unsigned best_set = 0;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 0; set < 1U << kMaxUnknowns; ++set) {
    Unknowns solution;
    if (!Solve(normal.a, normal.b, set, &solution)) continue;
    if (std::any_of(solution.begin(), solution.end(),
                    [](double value) { return value < 0; })) {
      continue;
    }
    const double error = SquaredError(observations, normal, solution);
    if (error < least) {
      least = error;
      best.value = solution;
      best_set = set;
    }
  }
  const auto used = static_cast<size_t>(std::popcount(best_set));
  const double variance =
      observations.size() > used
          ? least / static_cast<double>(observations.size() - used)
          : std::numeric_limits<double>::infinity();
  best.standard_error = StandardErrors(normal.a, best_set, variance);
  for (size_t i = 0; i < kMaxUnknowns; ++i) {
    best.value[i] /= normal.size[i];
    best.standard_error[i] /= normal.size[i];
  }
  return best;
}

double IndependentShare(std::span<const Observation> observations,
                        size_t column) {
  // Gram-Schmidt, column by column; far more exact than elimination.
  std::array<std::vector<double>, kMaxUnknowns> rest;
  double size = 0;
  for (size_t j = 0; j <= column; ++j) {
    for (const Observation& o : observations) {
      rest[j].push_back(o.weight * o.x[j]);
    }
    if (j == column) {
      for (const double value : rest[j]) size += value * value;
    }
    for (size_t k = 0; k < j; ++k) {
      double dot = 0;
      double square = 0;
      for (size_t n = 0; n < observations.size(); ++n) {
        dot += rest[j][n] * rest[k][n];
        square += rest[k][n] * rest[k][n];
      }
      if (!(square > 0)) continue;
      for (size_t n = 0; n < observations.size(); ++n) {
        rest[j][n] -= dot / square * rest[k][n];
      }
    }
  }
  if (!(size > 0)) return 0;
  double left = 0;
  for (const double value : rest[column]) left += value * value;
  return left / size;
}

}  // namespace skrull
