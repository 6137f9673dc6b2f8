#include "skrull/planner/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "skrull/planner/layout.h"

namespace skrull {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Values of x. Any set gives a valid bound; a finer one a little more.
constexpr double kShares[] = {0.25, 0.5, 0.75, 1.0};
// Halvings of the interval that the bound lies in: to a thousandth of it.
constexpr int kHalvings = 10;
// Sequences whose degrees are looked at one by one, the longest ones. Others
// count with their least work, which is valid too.
constexpr size_t kMostTraded = 64;

// One sequence on one degree above 1.
struct Option {
  double alone = 0;     // seconds, exchange and one overhead included
  double work = 0;      // rank-seconds of computing
  double exchange = 0;  // rank-seconds of exchange, latency left out
};

// A sequence that takes too long on one rank for a step as short as the other
// bounds allow.
struct Traded {
  double alone = kInfinity;  // on one rank, overhead included
  CompSeconds local;         // on one rank
  size_t first_option = 0;   // into Trade::options
  size_t num_options = 0;
};

// The test of traded_seconds.
class Trade {
 public:
  Trade(const Job& job, const CostModel& cost)
      : job_(job),
        cost_(cost),
        ranks_(static_cast<double>(job.pool().ranks())),
        layer_(job.cost().overlap_scope == OverlapScope::kLayer) {
    for (const int32_t degree :
         AllowedDegrees(job.parallelism().block_scope, job.pool())) {
      if (degree == 1) continue;
      degrees_.push_back({.degree = degree,
                          .longest = job.LongestOnDegree(degree),
                          .per_token = cost.MinExchangePerToken(degree)});
    }
  }

  // A sequence that is local in any plan, or may be for all that is known.
  void AddLocal(const CompSeconds& local) { untraded_.Add(local); }
  // One that is not; its least rank-seconds on any degree.
  void AddSharded(double least_work) { sharded_ += least_work; }

  void AddTraded(int64_t tokens, bool fits_one_rank) {
    const double overhead = job_.cost().seconds_per_micro_batch;
    Traded traded;
    traded.first_option = options_.size();
    if (fits_one_rank) {
      traded.local = cost_.Comp(tokens, 1);
      traded.alone = traded.local.total() + overhead;
    }
    for (const Degree& d : degrees_) {
      if (tokens > d.longest) continue;
      const double comp = cost_.Comp(tokens, d.degree).total();
      options_.push_back(
          {.alone = comp + cost_.MinExchange(d.degree, tokens) + overhead,
           .work = d.degree * comp,
           .exchange = d.degree * (static_cast<double>(tokens) * d.per_token)});
    }
    traded.num_options = options_.size() - traded.first_option;
    traded_.push_back(traded);
  }

  // The least P between `low`, which is a bound, and what passes.
  double Bound(double low, double overhead) const {
    double high = Needed(low) / ranks_ + overhead;
    if (!(high > low)) return low;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = low + (high - low) / 2;
      (Needed(middle) / ranks_ + overhead > middle ? low : high) = middle;
    }
    return low;
  }

 private:
  struct Degree {
    int32_t degree = 0;
    int64_t longest = 0;
    double per_token = 0;
  };

  // The most, over x, of the rank-seconds that a plan of `seconds` needs at
  // least. Falls as `seconds` grows, as more degrees are open then.
  double Needed(double seconds) const {
    double most = 0;
    for (const double x : kShares) {
      double sum = sharded_ + LocalNeed(untraded_, x);
      for (const Traded& t : traded_) {
        double least = t.alone <= seconds ? LocalNeed(t.local, x) : kInfinity;
        for (size_t i = 0; i < t.num_options; ++i) {
          const Option& option = options_[t.first_option + i];
          if (option.alone > seconds) continue;
          least = std::min(least, option.work + x * option.exchange);
        }
        sum += least;
      }
      most = std::max(most, sum);
    }
    return most;
  }

  // Only attention hides an exchange in OVERLAP_SCOPE_ATTENTION.
  double LocalNeed(const CompSeconds& local, double x) const {
    return layer_ ? (1 - x) * local.total()
                  : local.linear + (1 - x) * local.attention;
  }

  const Job& job_;
  const CostModel& cost_;
  const double ranks_;
  const bool layer_;
  std::vector<Degree> degrees_;
  CompSeconds untraded_;
  double sharded_ = 0;
  std::vector<Traded> traded_;
  std::vector<Option> options_;
};

// Micro-batches that a DP rank runs at least, on average over DP ranks.
double LeastMicroBatches(const Job& job, int64_t tokens) {
  const int64_t room = job.bucket_size() * job.pool().cp_size;
  const auto of_groups = static_cast<double>((tokens + room - 1) / room);
  double count = of_groups / job.pool().dp_size;
  if (job.parallelism().uniform_micro_batch_count) count = std::ceil(count);
  return std::max(1.0, count);
}

}  // namespace

LowerBound ComputeLowerBound(const Job& job, const CostModel& cost,
                             std::span<const int64_t> lengths) {
  struct Degree {
    int32_t degree;
    int64_t longest;
  };
  std::vector<Degree> degrees;
  for (const int32_t degree :
       AllowedDegrees(job.parallelism().block_scope, job.pool())) {
    degrees.push_back({degree, job.LongestOnDegree(degree)});
  }
  LowerBound bound;
  const double overhead = job.cost().seconds_per_micro_batch;
  std::vector<double> least_work(lengths.size());
  double work = 0;
  int64_t tokens = 0;
  for (size_t k = 0; k < lengths.size(); ++k) {
    double least = kInfinity;
    double alone = kInfinity;
    double exchange = 0;
    for (const Degree& d : degrees) {
      if (lengths[k] > d.longest) continue;
      const double comp = cost.Comp(lengths[k], d.degree).total();
      least = std::min(least, d.degree * comp);
      // A shard costs no less than this whatever else its block exchanges.
      if (comp >= alone) continue;
      const double exchanged = cost.MinExchange(d.degree, lengths[k]);
      if (comp + exchanged >= alone) continue;
      alone = comp + exchanged;
      exchange = exchanged;
    }
    least_work[k] = least;
    work += least;
    tokens += lengths[k];
    if (alone + overhead > bound.alone_seconds) {
      bound.alone_seconds = alone + overhead;
      bound.longest = static_cast<int32_t>(k);
      bound.exchange_seconds = exchange;
    }
  }
  bound.overhead_seconds = overhead * LeastMicroBatches(job, tokens);
  bound.even_seconds = work / job.pool().ranks() + bound.overhead_seconds;
  bound.seconds = std::max(bound.even_seconds, bound.alone_seconds);

  // Sequences that may be local in a step as short as that need no more than
  // (1 - x) of their work: only the others can move the bound.
  const int64_t longest_local = job.LongestOnDegree(1);
  std::vector<size_t> traded;
  for (size_t k = 0; k < lengths.size(); ++k) {
    if (lengths[k] > longest_local ||
        cost.Comp(lengths[k], 1).total() + overhead > bound.seconds) {
      traded.push_back(k);
    }
  }
  bound.traded_seconds = bound.seconds;
  if (traded.empty()) return bound;
  const auto longer = [&](size_t a, size_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
  };
  const size_t kept = std::min(traded.size(), kMostTraded);
  std::partial_sort(traded.begin(),
                    traded.begin() + static_cast<std::ptrdiff_t>(kept),
                    traded.end(), longer);
  Trade trade(job, cost);
  std::vector<char> is_traded(lengths.size(), 0);
  for (size_t i = 0; i < traded.size(); ++i) {
    const size_t k = traded[i];
    is_traded[k] = 1;
    const bool fits_one_rank = lengths[k] <= longest_local;
    if (i < kept) {
      trade.AddTraded(lengths[k], fits_one_rank);
    } else if (fits_one_rank) {
      trade.AddLocal(cost.Comp(lengths[k], 1));
    } else {
      trade.AddSharded(least_work[k]);
    }
  }
  for (size_t k = 0; k < lengths.size(); ++k) {
    if (!is_traded[k]) trade.AddLocal(cost.Comp(lengths[k], 1));
  }
  bound.traded_seconds = trade.Bound(bound.seconds, bound.overhead_seconds);
  bound.seconds = std::max(bound.seconds, bound.traded_seconds);
  return bound;
}

double WithoutRounding(double bound, double predicted) {
  constexpr double kRounding = 1e-9;  // relative, of sums over a whole batch
  return bound <= predicted * (1 + kRounding) ? std::min(bound, predicted)
                                              : bound;
}

}  // namespace skrull
