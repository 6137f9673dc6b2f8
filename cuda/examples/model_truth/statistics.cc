#include "skrull/cuda/examples/model_truth/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace skrull::examples {
namespace {

using Vector = std::array<double, kMaxUnknowns>;

// Solves the normal equations for the unknowns in `set`, a bit each, by
// Gaussian elimination. False if they are (nearly) dependent.
bool Solve(std::array<Vector, kMaxUnknowns> a, Vector b, unsigned set,
           Vector* solution) {
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

std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t k = i; k < end; ++k) {
      ranks[order[k]] = static_cast<double>(i + end - 1) / 2;
    }
    i = end;
  }
  return ranks;
}

}  // namespace

Vector NonNegativeLeastSquares(std::span<const Observation> observations) {
  // Columns are scaled to one size, so that "nearly dependent" has a meaning.
  Vector size = {};
  for (const Observation& o : observations) {
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      size[i] += o.weight * o.x[i] * o.weight * o.x[i];
    }
  }
  for (double& s : size) s = s > 0 ? std::sqrt(s) : 1;
  std::array<Vector, kMaxUnknowns> a = {};
  Vector b = {};
  for (const Observation& o : observations) {
    for (size_t i = 0; i < kMaxUnknowns; ++i) {
      const double xi = o.weight * o.x[i] / size[i];
      b[i] += xi * o.weight * o.y;
      for (size_t j = 0; j < kMaxUnknowns; ++j) {
        a[i][j] += xi * o.weight * o.x[j] / size[j];
      }
    }
  }
  Vector best = {};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 0; set < 1U << kMaxUnknowns; ++set) {
    Vector solution;
    if (!Solve(a, b, set, &solution)) continue;
    if (std::any_of(solution.begin(), solution.end(),
                    [](double value) { return value < 0; })) {
      continue;
    }
    double error = 0;
    for (const Observation& o : observations) {
      double sum = 0;
      for (size_t i = 0; i < kMaxUnknowns; ++i) {
        sum += solution[i] * o.x[i] / size[i];
      }
      error += o.weight * (o.y - sum) * o.weight * (o.y - sum);
    }
    if (error < least) {
      least = error;
      best = solution;
    }
  }
  for (size_t i = 0; i < kMaxUnknowns; ++i) best[i] /= size[i];
  return best;
}

double Spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = Ranks(a);
  const std::vector<double> y = Ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace skrull::examples
