// A plan as the daemon hands it out: its bytes, and the shares of its ranks.
//
// Immutable once made; safe to share between threads.
#ifndef SKRULL_SERVER_COMMITTED_PLAN_H_
#define SKRULL_SERVER_COMMITTED_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/rank_plan.h"
#include "skrull/server/plan_store.h"

namespace skrull {

class CommittedPlan {
 public:
  // A plan with its digest and the record that holds its bytes. O(K log K).
  static std::shared_ptr<const CommittedPlan> Make(Plan plan,
                                                   std::string digest,
                                                   PlanRecord record);

  // Decodes a record of the store. Errors: INTERNAL, kInternal, for bytes that
  // are no plan.
  static absl::StatusOr<std::shared_ptr<const CommittedPlan>> Decode(
      PlanRecord record);

  const PlanRecord& record() const { return record_; }
  const std::string& digest() const { return digest_; }
  const Plan& plan() const { return plan_; }

  // Approximate memory, bytes.
  int64_t size_bytes() const;

  // Equal to MakeRankPlan(plan(), digest(), rank), at a cost that does not grow
  // with the other ranks' work: O(the rank's segments + micro-batches * log K).
  // REQUIRES: rank >= 0.
  RankPlan Share(int32_t rank) const;

 private:
  // Placements of one micro-batch that share a block: `order_` holds their
  // positions in placement order, in [begin, end).
  struct Group {
    Block block;
    int32_t begin;
    int32_t end;
  };
  // Groups of one micro-batch with one degree, by first_rank: `groups_`
  // [begin, end). Blocks of one degree never overlap.
  struct DegreeRun {
    int32_t degree;
    int32_t begin;
    int32_t end;
  };

  CommittedPlan(Plan plan, std::string digest, PlanRecord record);

  const Plan plan_;
  const std::string digest_;
  const PlanRecord record_;
  int64_t token_count_ = 0;            // of the whole batch
  std::vector<int32_t> order_;         // placements by (micro-batch, block)
  std::vector<Group> groups_;          // by (micro-batch, degree, first_rank)
  std::vector<DegreeRun> degrees_;     // by (micro-batch, degree)
  std::vector<int32_t> first_degree_;  // per micro-batch, into degrees_; + 1
};

}  // namespace skrull

#endif  // SKRULL_SERVER_COMMITTED_PLAN_H_
