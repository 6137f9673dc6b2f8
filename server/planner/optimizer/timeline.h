// When each DP rank runs each micro-batch of a state, and how much longer it
// could take without delaying the step.
#ifndef SKRULL_SERVER_PLANNER_OPTIMIZER_TIMELINE_H_
#define SKRULL_SERVER_PLANNER_OPTIMIZER_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "skrull/planner/job.h"
#include "skrull/planner/optimizer/search_state.h"

namespace skrull {

// The step's time by the same rules as StepClock, forwards and backwards. Not
// thread-safe. `job` and `state` must outlive it.
class Timeline {
 public:
  Timeline(const Job& job, const SearchState& state);

  // Reads the state again. O(micro-batches * ranks).
  void Update();

  // Predicted seconds of the step.
  double seconds() const { return seconds_; }

  // Seconds that slots of DP ranks [first, last] may take in the micro-batch,
  // if a block joins them, for the step to last no longer than it does. A slot
  // that takes just this is critical. Ranks of DP ranks are counted as in the
  // state. O(last - first + 1).
  double Limit(int32_t micro_batch, int32_t first, int32_t last) const;

 private:
  struct Cell {
    double start = 0;  // when the last member of its component is ready
    double tail = 0;   // from its component's end to the end of the step
  };
  size_t Index(int32_t micro_batch, int32_t dp_rank) const {
    return static_cast<size_t>(micro_batch) * ready_.size() +
           static_cast<size_t>(dp_rank);
  }
  // Labels each DP rank with the first one of its component and fills
  // duration_ (0 where nothing runs), for one micro-batch.
  void ReadMicroBatch(int32_t micro_batch);

  const double overhead_;
  const bool uniform_;
  const SearchState& state_;
  double seconds_ = 0;
  std::vector<Cell> cells_;         // [micro-batch][DP rank]
  std::vector<int32_t> component_;  // [micro-batch][DP rank]
  std::vector<double> duration_;    // [micro-batch][DP rank], of its component
  std::vector<double> ready_;       // per DP rank
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_OPTIMIZER_TIMELINE_H_
