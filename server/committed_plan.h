// A plan as the daemon hands it out: its bytes, and the shares of its ranks.
//
// Immutable once made, but for an index that is built once, when it is first
// needed; safe to share between threads.
#ifndef SKRULL_SERVER_COMMITTED_PLAN_H_
#define SKRULL_SERVER_COMMITTED_PLAN_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/server/plan_store.h"

namespace skrull {

class CommittedPlan {
 public:
  // A plan with its digest and the record that holds its bytes.
  static std::shared_ptr<const CommittedPlan> Make(Plan plan,
                                                   std::string digest,
                                                   PlanRecord record);

  // Decodes a record of the store. Errors: INTERNAL, kInternal, for bytes that
  // are no plan, or not that of its digest. O(bytes).
  static absl::StatusOr<std::shared_ptr<const CommittedPlan>> Decode(
      PlanRecord record);

  const PlanRecord& record() const { return record_; }
  const std::string& digest() const { return digest_; }
  const Plan& plan() const { return plan_; }

  // Approximate memory, bytes.
  int64_t size_bytes() const;

  // Builds the index of Share now, if nothing has. O(K log K).
  void Prepare() const;

  // Equal to MakeRankPlan(plan(), digest(), rank), at a cost that does not grow
  // with the other ranks' work: O(the rank's segments + micro-batches * log K),
  // once prepared. REQUIRES: rank >= 0.
  RankPlan Share(int32_t rank) const;

 private:
  // Placements of one micro-batch that share a block: `order` holds their
  // positions in placement order, in [begin, end).
  struct Group {
    Block block;
    int32_t begin;
    int32_t end;
  };
  // Groups of one micro-batch with one degree, by first_rank: `groups`
  // [begin, end). Blocks of one degree never overlap.
  struct DegreeRun {
    int32_t degree;
    int32_t begin;
    int32_t end;
  };

  struct Index {
    int64_t token_count = 0;            // of the whole batch
    std::vector<int32_t> order;         // placements by (micro-batch, block)
    std::vector<Group> groups;          // by (micro-batch, degree, first_rank)
    std::vector<DegreeRun> degrees;     // by (micro-batch, degree)
    std::vector<int32_t> first_degree;  // per micro-batch, into degrees; + 1
    // Chunks by DP rank, of a plan of chunks.
    std::vector<std::vector<int32_t>> chunks;
  };

  CommittedPlan(Plan plan, std::string digest, PlanRecord record);
  static Index MakeIndex(const Plan& plan);

  const Plan plan_;
  const std::string digest_;
  const PlanRecord record_;
  mutable std::once_flag prepared_;
  mutable Index index_;  // written under prepared_
};

}  // namespace skrull

#endif  // SKRULL_SERVER_COMMITTED_PLAN_H_
