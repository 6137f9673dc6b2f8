// Fewest bins, against every way to pack small instances.
#include "skrull/planner/chunk_flow/bin_packing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "skrull/tests/planner/planner_test_util.h"

namespace skrull {
namespace {

using Bins = std::vector<std::vector<int32_t>>;

// The fewest bins, by trying every bin for every item.
class AllPackings {
 public:
  AllPackings(const std::vector<int64_t>& sizes, int64_t capacity,
              int64_t max_items)
      : sizes_(sizes), capacity_(capacity), max_items_(max_items) {}

  size_t Fewest() {
    best_ = sizes_.size();
    Place(0);
    return best_;
  }

 private:
  void Place(size_t item) {
    if (loads_.size() >= best_) return;
    if (item == sizes_.size()) {
      best_ = loads_.size();
      return;
    }
    for (size_t b = 0; b <= loads_.size(); ++b) {
      if (b == loads_.size()) {
        loads_.push_back(sizes_[item]);
        counts_.push_back(1);
        Place(item + 1);
        loads_.pop_back();
        counts_.pop_back();
        return;
      }
      if (loads_[b] + sizes_[item] > capacity_ || counts_[b] == max_items_) {
        continue;
      }
      loads_[b] += sizes_[item];
      ++counts_[b];
      Place(item + 1);
      loads_[b] -= sizes_[item];
      --counts_[b];
    }
  }

  const std::vector<int64_t>& sizes_;
  const int64_t capacity_;
  const int64_t max_items_;
  std::vector<int64_t> loads_;
  std::vector<int64_t> counts_;
  size_t best_ = 0;
};

// "" if the bins hold every item once within the limits.
std::string Problem(const std::vector<int64_t>& sizes, int64_t capacity,
                    int64_t max_items, const Bins& bins) {
  std::vector<int> seen(sizes.size(), 0);
  int64_t last_largest = capacity;
  for (const std::vector<int32_t>& bin : bins) {
    int64_t load = 0;
    int64_t largest = 0;
    for (const int32_t item : bin) {
      ++seen[static_cast<size_t>(item)];
      load += sizes[static_cast<size_t>(item)];
      largest = std::max(largest, sizes[static_cast<size_t>(item)]);
    }
    if (bin.empty()) return "an empty bin";
    if (load > capacity) return "a bin over its capacity";
    if (static_cast<int64_t>(bin.size()) > max_items) return "too many items";
    if (!std::is_sorted(bin.begin(), bin.end())) return "items out of order";
    if (largest > last_largest) return "bins out of order";
    last_largest = largest;
  }
  for (const int count : seen) {
    if (count != 1) return "an item that is not in one bin";
  }
  return "";
}

TEST_CASE("PackFewest: every small instance takes the fewest bins",
          "[planner][chunks][exhaustive]") {
  int64_t instances = 0;
  for (const int64_t capacity : {4, 7, 10}) {
    for (const int64_t max_items : {2, 3, 100}) {
      std::vector<int64_t> sizes;
      // Every ascending list of up to seven sizes.
      const auto extend = [&](auto&& self, int64_t least) -> void {
        if (!sizes.empty()) {
          const Bins bins = PackFewest(sizes, capacity, max_items);
          const std::string problem = Problem(sizes, capacity, max_items, bins);
          const size_t fewest =
              AllPackings(sizes, capacity, max_items).Fewest();
          ++instances;
          if (!problem.empty() || bins.size() != fewest) {
            FAIL(problem << " " << bins.size() << " bins, fewest " << fewest
                         << ": " << testing::ToText(sizes) << " in " << capacity
                         << ", " << max_items << " items");
          }
        }
        if (sizes.size() == 6) return;
        for (int64_t size = least; size <= capacity; ++size) {
          sizes.push_back(size);
          self(self, size);
          sizes.pop_back();
        }
      };
      extend(extend, 1);
    }
  }
  CHECK(instances > 25000);
}

TEST_CASE("PackFewest: ten items take the fewest bins",
          "[planner][chunks][random]") {
  testing::Random random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int run = 0; run < 2000; ++run) {
    const int64_t capacity = random.Pick<int64_t>({20, 100, 1000});
    const int64_t max_items = random.Pick<int64_t>({2, 3, 50});
    std::vector<int64_t> sizes;
    for (int i = 0; i < 10; ++i) {
      sizes.push_back(
          random.Between(1, capacity / random.Pick<int64_t>({1, 2, 3})));
    }
    const Bins bins = PackFewest(sizes, capacity, max_items);
    CAPTURE(testing::ToText(sizes), capacity, max_items);
    REQUIRE(Problem(sizes, capacity, max_items, bins).empty());
    REQUIRE(bins.size() == AllPackings(sizes, capacity, max_items).Fewest());
  }
}

TEST_CASE("PackFewest: finds what best fit decreasing misses",
          "[planner][chunks]") {
  // It makes {5, 5, 4}, {4, 3, 3, 3}, {3}, and {5, 4}, {4, 3, 2}, {2}.
  CHECK(
      PackFewest(std::vector<int64_t>{4, 4, 5, 5, 3, 3, 3, 3}, 15, 9).size() ==
      2);
  CHECK(PackFewest(std::vector<int64_t>{5, 4, 4, 3, 2, 2}, 10, 9) ==
        Bins{{0, 3, 4}, {1, 2, 5}});
}

TEST_CASE("PackFewest: many items stay close to their sum",
          "[planner][chunks]") {
  testing::Random random(7);
  std::vector<int64_t> sizes;
  for (int i = 0; i < 100000; ++i) sizes.push_back(random.Between(1, 1000));
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const Bins bins = PackFewest(sizes, 4096, 1000);
  CHECK(Problem(sizes, 4096, 1000, bins).empty());
  CHECK(static_cast<int64_t>(bins.size()) <= sum / 4096 + 2);
}

}  // namespace
}  // namespace skrull
