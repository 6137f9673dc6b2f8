#include "skrull/tests/bench/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace skrull::load {
namespace {

constexpr int64_t kLinear = 256;     // values with a bucket of their own
constexpr int64_t kPerOctave = 128;  // buckets of each octave above
constexpr int kLinearBits = 8;

}  // namespace

void Histogram::Add(int64_t micros) {
  micros = std::clamp<int64_t>(micros, 0, kMaxMicros);
  const size_t bucket = BucketOf(micros);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++count_;
  max_ = std::max(max_, micros);
  sum_ += static_cast<double>(micros);
}

void Histogram::Merge(const Histogram& other) {
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (size_t i = 0; i < other.counts_.size(); ++i) {
    counts_[i] += other.counts_[i];
  }
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

int64_t Histogram::Quantile(double share) const {
  // Rounding must not ask for one sample more than the share needs.
  const double wanted = share * static_cast<double>(count_);
  const auto rank = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(wanted - 1e-9 * wanted)), 1,
      std::max<int64_t>(count_, 1));
  int64_t seen = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (seen >= rank) return std::min(LastOf(bucket), max_);
  }
  return 0;
}

size_t Histogram::BucketOf(int64_t micros) {
  if (micros < kLinear) return static_cast<size_t>(micros);
  const int shift =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(micros))) -
      kLinearBits;
  // The top kLinearBits bits: kPerOctave .. kLinear - 1.
  const int64_t top = micros >> shift;
  return static_cast<size_t>(kLinear + (shift - 1) * kPerOctave + top -
                             kPerOctave);
}

int64_t Histogram::LastOf(size_t bucket) {
  const auto index = static_cast<int64_t>(bucket);
  if (index < kLinear) return index;
  const int64_t shift = (index - kLinear) / kPerOctave + 1;
  const int64_t top = (index - kLinear) % kPerOctave + kPerOctave;
  return ((top + 1) << shift) - 1;
}

}  // namespace skrull::load
