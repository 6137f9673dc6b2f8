// Counts of durations in buckets that are at most 1/128 of their value wide,
// from which percentiles are read.
//
// Debian has no HdrHistogram for C or C++; this is its layout: every duration
// below 256 us has a bucket of its own, and each octave above has 128.
#ifndef SKRULL_TESTS_BENCH_LOAD_HISTOGRAM_H_
#define SKRULL_TESTS_BENCH_LOAD_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skrull::load {

// Not thread-safe.
class Histogram {
 public:
  // `micros` is clamped to 0 .. kMaxMicros, about 13 days. O(1).
  static constexpr int64_t kMaxMicros = (int64_t{1} << 40) - 1;
  void Add(int64_t micros);
  void Merge(const Histogram& other);

  int64_t count() const { return count_; }
  int64_t max() const { return max_; }  // exact; 0 without samples
  double mean() const;

  // The least value that at least `share` (0 .. 1) of the samples do not
  // exceed, rounded up to the end of its bucket, and never above max(). 0
  // without samples. O(buckets).
  int64_t Quantile(double share) const;

 private:
  static size_t BucketOf(int64_t micros);
  static int64_t LastOf(size_t bucket);

  std::vector<int64_t> counts_;  // by bucket; as long as the largest needs
  int64_t count_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_HISTOGRAM_H_
