// A validated training job: shape, memory and cost numbers as the planner uses
// them.
//
// JobSpec is plain data, mirroring skrull.v1.JobSpec field by field with the
// same names, units, ranges and defaults (proto/skrull/v1/job.proto documents
// them). Job::Create is the only way from one to the other; a Job never holds a
// value out of range.
#ifndef SKRULL_SERVER_PLANNER_JOB_H_
#define SKRULL_SERVER_PLANNER_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/layout.h"

namespace skrull {

enum class Policy : int8_t {
  kSkrull,          // GDS + DACP, Alg. 1 and 2 of the paper, corrected
  kStaticCp,        // every sequence over its whole CP group, one a micro-batch
  kPackedStaticCp,  // the same, packed to the bucket
  kOptimized,       // the best of several constructions, refined
  kDacpOnly,        // DACP on the trainer's own micro-batches
  kRoundRobin,      // GDS with Alg. 4 in the place of DACP
  kSorted,          // static CP over the batch in order of length (LongAlign)
  kChunkFlow,       // chunks instead of micro-batches (ChunkFlow)
};

// "POLICY_SKRULL" for kSkrull, and so on: the name on the wire.
std::string PolicyName(Policy policy);

// Every policy, in enum order.
std::vector<Policy> AllPolicies();

enum class FlopsFormula : int8_t { kPaper, kExact };
enum class OverlapScope : int8_t { kLayer, kAttention };

struct ModelSpec {
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> layer_count;
  std::optional<int64_t> attention_head_count;
  std::optional<int64_t> kv_head_count;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> vocab_size;
};

struct ParallelismSpec {
  int32_t dp_size = 1;
  int32_t cp_size = 1;
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  int32_t ranks_per_node = 0;  // 0 = the whole pool is one node
  BlockScope block_scope = BlockScope::kGroup;
  bool uniform_micro_batch_count = false;
};

struct MemorySpec {
  std::optional<int64_t> bucket_size_tokens;
  std::optional<int64_t> device_bytes;
  int64_t static_bytes = 0;
  std::optional<double> bytes_per_token;
  double reserve_fraction = 0;
  double gather_bytes_per_token = 0;
  int64_t max_sequences_per_micro_batch = 65535;
};

struct LinkTablePoint {
  int64_t bytes = 0;
  double seconds = 0;
};

struct LinkCost {
  double seconds_per_collective = 0;
  double seconds_per_byte = 0;
  std::vector<LinkTablePoint> table;
};

struct CostSpec {
  FlopsFormula flops_formula = FlopsFormula::kPaper;
  OverlapScope overlap_scope = OverlapScope::kLayer;
  double seconds_per_flop = 2.5e-15;
  double pass_multiplier = 4;
  double seconds_per_micro_batch = 0;
  double efficiency_half_tokens = 0;
  double collectives_per_layer = 3;
  double bytes_per_element = 2;
  LinkCost intra_node;
  std::optional<LinkCost> inter_node;  // nullopt = as intra_node
  double backward_forward_ratio = 2;
};

struct OptimizerSpec {
  int64_t search_steps = 4000;
};

struct HeuristicSpec {
  bool roll_back = true;
};

struct ChunkFlowSpec {
  std::optional<int64_t> chunk_size_tokens;  // nullopt = the most that fits
  int64_t retained_chunks = 1;
};

struct JobSpec {
  ModelSpec model;
  ParallelismSpec parallelism;
  MemorySpec memory;
  CostSpec cost;
  OptimizerSpec optimizer;
  HeuristicSpec heuristic;
  ChunkFlowSpec chunk_flow;
  std::optional<Policy> policy;  // nullopt = kOptimized
};

// Immutable once made; copyable; safe to share between threads.
class Job {
 public:
  // Most ranks in a pool: keeps every rank index and row sum well inside its
  // type. The server has its own, lower or equal, limit.
  static constexpr int64_t kMaxRanks = 1 << 20;
  // Most stages of a pipeline.
  static constexpr int32_t kMaxStages = 1024;

  // Errors: INVALID_ARGUMENT, kFieldInvalid, naming the first field out of
  // range by its proto path, e.g. "parallelism.cp_size".
  static absl::StatusOr<Job> Create(const JobSpec& spec);

  // What it was made of, with the model's derived numbers filled in.
  const JobSpec& spec() const { return spec_; }
  const ParallelismSpec& parallelism() const { return spec_.parallelism; }
  const CostSpec& cost() const { return spec_.cost; }
  const LinkCost& inter_node() const {
    return spec_.cost.inter_node ? *spec_.cost.inter_node
                                 : spec_.cost.intra_node;
  }
  PoolShape pool() const {
    return {spec_.parallelism.dp_size, spec_.parallelism.cp_size};
  }
  Policy policy() const { return spec_.policy.value_or(Policy::kOptimized); }
  const HeuristicSpec& heuristic() const { return spec_.heuristic; }
  const ChunkFlowSpec& chunk_flow() const { return spec_.chunk_flow; }
  // Trials of POLICY_OPTIMIZED's local search, >= 0.
  int64_t search_steps() const { return spec_.optimizer.search_steps; }
  int64_t layer_count() const { return *spec_.model.layer_count; }

  // FLOPs of one forward pass of a sequence of S tokens:
  // linear_flops() * S + attention_flops() * S^2, over all layers.
  double linear_flops() const { return linear_flops_; }
  double attention_flops() const { return attention_flops_; }
  // 2 * h_kv * bytes_per_element.
  double kv_bytes_per_token() const { return kv_bytes_per_token_; }

  // Tokens one rank can hold in one micro-batch, >= 1.
  int64_t bucket_size() const { return bucket_size_; }
  int64_t max_sequences_per_micro_batch() const {
    return spec_.memory.max_sequences_per_micro_batch;
  }
  // True if gathered K/V counts: a rank then also obeys
  // load * bytes_per_token() + gathered * gather_bytes_per_token() <=
  // byte_budget(), evaluated in doubles just so.
  bool models_gather() const { return spec_.memory.gather_bytes_per_token > 0; }
  double bytes_per_token() const {
    return spec_.memory.bytes_per_token.value_or(0);
  }
  double gather_bytes_per_token() const {
    return spec_.memory.gather_bytes_per_token;
  }
  double byte_budget() const { return byte_budget_; }

  // The memory rule of one rank in one micro-batch: `load` rows, and `gathered`
  // tokens in the sequences it holds shards of. O(1).
  bool FitsRank(int64_t load, int64_t gathered) const {
    return load <= bucket_size_ &&
           (!models_gather() ||
            static_cast<double>(load) * bytes_per_token() +
                    static_cast<double>(gathered) * gather_bytes_per_token() <=
                byte_budget_);
  }

  // The longest sequence that an otherwise empty block of `degree` ranks holds,
  // tokens; 0 if it holds none. O(log).
  int64_t LongestOnDegree(int32_t degree) const;

  // The longest sequence the job can place at all, over allowed degrees.
  int64_t longest_sequence() const { return longest_sequence_; }

 private:
  explicit Job(const JobSpec& spec) : spec_(spec) {}

  JobSpec spec_;
  double linear_flops_ = 0;
  double attention_flops_ = 0;
  double kv_bytes_per_token_ = 0;
  int64_t bucket_size_ = 0;
  double byte_budget_ = 0;
  int64_t longest_sequence_ = 0;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_PLANNER_JOB_H_
