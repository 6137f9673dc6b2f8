#include "skrull/tests/planner/planner_test_util.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "skrull/planner/layout.h"
#include "skrull/planner/planner.h"

namespace skrull::testing {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

LinkCost RandomLink(Random& random) {
  LinkCost link;
  if (random.Chance(0.6)) {
    link.seconds_per_collective = random.Pick({0.0, 4.1e-5, 0.01});
    link.seconds_per_byte = random.Pick({0.0, 6e-12, 1e-9});
    return link;
  }
  int64_t bytes = random.Between(0, 1);
  double seconds = random.Pick({0.0, 1e-3});
  for (int64_t i = random.Between(1, 5); i > 0; --i) {
    link.table.push_back({bytes, seconds});
    bytes += random.Pick<int64_t>({1, 1000, 1000000, 100000000});
    seconds += random.Pick({0.0, 1e-5, 1e-3, 0.1});
  }
  // A measured table may dip before its end.
  if (link.table.size() > 2 && random.Chance(0.3)) link.table[1].seconds = 0;
  return link;
}

MemorySpec RandomMemory(Random& random) {
  MemorySpec memory;
  const auto bucket = random.Between(
      1, random.Pick<int64_t>({1, 3, 10, 97, 128, 1000, 4096, 26624}));
  const double bytes_per_token = random.Pick({1.0, 3.5, 1000.0});
  if (random.Chance(0.3)) {
    memory.reserve_fraction = random.Pick({0.0, 0.05, 0.25});
    memory.static_bytes = random.Pick<int64_t>({0, 12345});
    const double needed = (static_cast<double>(bucket) * bytes_per_token +
                           static_cast<double>(memory.static_bytes)) /
                          (1 - memory.reserve_fraction);
    memory.device_bytes = static_cast<int64_t>(needed) + 1;
    memory.bytes_per_token = bytes_per_token;
  } else {
    memory.bucket_size_tokens = bucket;
  }
  if (random.Chance(0.3)) {
    memory.bytes_per_token = bytes_per_token;
    memory.gather_bytes_per_token =
        bytes_per_token * random.Pick({0.01, 0.1, 0.4, 1.0, 3.0});
  }
  if (random.Chance(0.2)) {
    memory.max_sequences_per_micro_batch =
        random.Pick<int64_t>({1, 2, 3, 8, 50});
  }
  return memory;
}

const char* ScopeName(BlockScope scope) {
  switch (scope) {
    case BlockScope::kGroup:
      return "group";
    case BlockScope::kSubgroup:
      return "subgroup";
    case BlockScope::kPool:
      return "pool";
  }
  return "?";
}

void AppendLink(const char* name, const LinkCost& link,
                std::ostringstream& out) {
  out << " " << name << "{" << Number(link.seconds_per_collective) << " s + "
      << Number(link.seconds_per_byte) << " s/B";
  for (const LinkTablePoint& p : link.table) {
    out << " (" << p.bytes << " B, " << Number(p.seconds) << " s)";
  }
  out << "}";
}

const char* PassName(ChunkPass pass) {
  switch (pass) {
    case ChunkPass::kForward:
      return "F";
    case ChunkPass::kForwardDiscard:
      return "FD";
    case ChunkPass::kRecompute:
      return "R";
    case ChunkPass::kBackward:
      return "B";
  }
  return "?";
}

void AppendChunks(const ChunkPlan& plan, std::ostringstream& out) {
  out << "chunks of " << plan.chunk_size_tokens << " tokens, "
      << plan.retained_chunks << " retained, over " << plan.cp_size
      << " ranks\n";
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const Chunk& chunk = plan.chunks[i];
    out << "chunk " << i << ", " << chunk.group_index << " of "
        << chunk.group_size << ", on DP rank " << chunk.dp_rank << ": "
        << chunk.token_count << " tokens, " << Number(chunk.predicted_seconds)
        << " s\n";
    for (const ChunkPiece& piece : chunk.pieces) {
      out << "  sequence " << piece.sequence << ": " << piece.range.begin
          << " .. " << piece.range.end << " of " << piece.token_count << "\n";
    }
  }
  for (const ChunkSchedule& schedule : plan.schedules) {
    out << "DP rank " << schedule.dp_rank << ": "
        << Number(schedule.predicted_seconds) << " s:";
    for (const ChunkOperation& operation : schedule.operations) {
      out << " " << PassName(operation.pass) << operation.chunk;
    }
    out << "\n";
  }
}

}  // namespace

JobSpec UnitSpec(int32_t dp_size, int32_t cp_size, int64_t bucket_size) {
  JobSpec spec;
  spec.model.hidden_size = 1;
  spec.model.layer_count = 1;
  spec.model.attention_head_count = 1;
  spec.parallelism.dp_size = dp_size;
  spec.parallelism.cp_size = cp_size;
  spec.memory.bucket_size_tokens = bucket_size;
  spec.cost.seconds_per_flop = 1;
  spec.cost.pass_multiplier = 1;
  spec.cost.collectives_per_layer = 1;
  return spec;
}

JobSpec PaperSpec() {
  JobSpec spec;
  spec.model.hidden_size = 896;
  spec.model.layer_count = 24;
  spec.model.attention_head_count = 14;
  spec.model.kv_head_count = 2;
  spec.model.head_dim = 64;
  spec.parallelism.dp_size = 4;
  spec.parallelism.cp_size = 8;
  spec.parallelism.ranks_per_node = 8;
  spec.memory.bucket_size_tokens = 26624;
  spec.cost.seconds_per_micro_batch = 0.035;
  spec.cost.intra_node = {4.1e-5, 6e-12, {}};
  spec.cost.inter_node = LinkCost{8e-5, 2.5e-11, {}};
  return spec;
}

Job MakeJob(const JobSpec& spec) {
  absl::StatusOr<Job> job = Job::Create(spec);
  if (!job.ok()) throw std::runtime_error(job.status().ToString());
  return *job;
}

Plan MustPlan(const Job& job, std::span<const int64_t> lengths,
              std::optional<Policy> policy) {
  PlanOptions options;
  options.policy = policy;
  absl::StatusOr<Plan> plan = MakePlan(job, lengths, options);
  if (!plan.ok()) throw std::runtime_error(plan.status().ToString());
  return *plan;
}

int64_t Random::Between(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(engine_);
}

bool Random::Chance(double p) {
  return std::uniform_real_distribution<double>(0, 1)(engine_) < p;
}

JobSpec RandomSpec(Random& random) {
  JobSpec spec;
  ModelSpec& model = spec.model;
  model.attention_head_count = random.Pick<int64_t>({1, 4, 14});
  model.head_dim = random.Pick<int64_t>({8, 64});
  model.kv_head_count =
      random.Chance(0.5) ? 1 : model.attention_head_count.value();
  model.hidden_size = *model.attention_head_count * *model.head_dim;
  model.layer_count = random.Pick<int64_t>({1, 24, 80});
  model.intermediate_size = random.Pick<int64_t>({16, 4864});
  model.vocab_size = random.Pick<int64_t>({100, 151936});

  ParallelismSpec& parallelism = spec.parallelism;
  parallelism.dp_size = static_cast<int32_t>(random.Between(1, 6));
  parallelism.cp_size = static_cast<int32_t>(random.Between(1, 12));
  parallelism.ranks_per_node = random.Pick({0, 1, 2, 8});
  parallelism.block_scope = random.Pick(
      {BlockScope::kGroup, BlockScope::kSubgroup, BlockScope::kPool});
  parallelism.uniform_micro_batch_count = random.Chance(0.5);

  // Drawn again until the device holds at least one token.
  do {
    spec.memory = RandomMemory(random);
  } while (!Job::Create(spec).ok());

  CostSpec& cost = spec.cost;
  cost.flops_formula =
      random.Pick({FlopsFormula::kPaper, FlopsFormula::kExact});
  cost.overlap_scope =
      random.Pick({OverlapScope::kLayer, OverlapScope::kAttention});
  cost.seconds_per_flop = random.Pick({2.5e-15, 1e-12});
  cost.pass_multiplier = random.Pick({1.0, 3.0, 4.0});
  cost.seconds_per_micro_batch = random.Pick({0.0, 0.035, 10.0});
  cost.efficiency_half_tokens = random.Pick({0.0, 1.0, 256.0});
  cost.collectives_per_layer = random.Pick({0.0, 3.0});
  cost.bytes_per_element = random.Pick({1.0, 2.0});
  cost.intra_node = RandomLink(random);
  if (random.Chance(0.7)) cost.inter_node = RandomLink(random);
  return spec;
}

std::vector<int64_t> RandomLengths(Random& random, const Job& job,
                                   int64_t most) {
  const int64_t longest = job.longest_sequence();
  const int64_t bucket = std::min(job.bucket_size(), longest);
  const int64_t group =
      std::min(bucket * job.pool().cp_size, job.longest_sequence());
  std::vector<int64_t> lengths(
      static_cast<size_t>(random.Between(1, random.Between(1, most))));
  for (int64_t& length : lengths) {
    const int64_t top = random.Pick<int64_t>(
        {std::min<int64_t>(2, longest), bucket, bucket, group, longest});
    length = random.Chance(0.25) ? top : random.Between(1, top);
  }
  return lengths;
}

std::string ToText(std::span<const int64_t> lengths) {
  std::ostringstream out;
  out << "[";
  for (size_t i = 0; i < lengths.size(); ++i) {
    out << (i > 0 ? "," : "") << lengths[i];
  }
  out << "]";
  return out.str();
}

std::string ToText(const JobSpec& spec) {
  std::ostringstream out;
  const auto integer = [&](const char* name, std::optional<int64_t> value) {
    if (value) out << " " << name << "=" << *value;
  };
  integer("hidden_size", spec.model.hidden_size);
  integer("layer_count", spec.model.layer_count);
  integer("attention_head_count", spec.model.attention_head_count);
  integer("kv_head_count", spec.model.kv_head_count);
  integer("head_dim", spec.model.head_dim);
  integer("intermediate_size", spec.model.intermediate_size);
  integer("vocab_size", spec.model.vocab_size);
  integer("dp_size", spec.parallelism.dp_size);
  integer("cp_size", spec.parallelism.cp_size);
  integer("ranks_per_node", spec.parallelism.ranks_per_node);
  out << " scope=" << ScopeName(spec.parallelism.block_scope);
  integer("uniform", spec.parallelism.uniform_micro_batch_count);
  integer("bucket_size_tokens", spec.memory.bucket_size_tokens);
  integer("device_bytes", spec.memory.device_bytes);
  integer("static_bytes", spec.memory.static_bytes);
  integer("max_sequences_per_micro_batch",
          spec.memory.max_sequences_per_micro_batch);
  if (spec.optimizer.search_steps != OptimizerSpec{}.search_steps) {
    integer("search_steps", spec.optimizer.search_steps);
  }
  const auto real = [&](const char* name, double value) {
    out << " " << name << "=" << Number(value);
  };
  real("bytes_per_token", spec.memory.bytes_per_token.value_or(0));
  real("reserve_fraction", spec.memory.reserve_fraction);
  real("gather_bytes_per_token", spec.memory.gather_bytes_per_token);
  out << (spec.cost.flops_formula == FlopsFormula::kPaper ? " paper" : " exact")
      << (spec.cost.overlap_scope == OverlapScope::kLayer ? " layer"
                                                          : " attention");
  real("seconds_per_flop", spec.cost.seconds_per_flop);
  real("pass_multiplier", spec.cost.pass_multiplier);
  real("seconds_per_micro_batch", spec.cost.seconds_per_micro_batch);
  real("efficiency_half_tokens", spec.cost.efficiency_half_tokens);
  real("collectives_per_layer", spec.cost.collectives_per_layer);
  real("bytes_per_element", spec.cost.bytes_per_element);
  AppendLink("intra_node", spec.cost.intra_node, out);
  if (spec.cost.inter_node) {
    AppendLink("inter_node", *spec.cost.inter_node, out);
  }
  return out.str();
}

std::string ToText(const Plan& plan) {
  std::ostringstream out;
  out << "policy " << PolicyName(plan.policy) << "\n";
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    const MicroBatchPlan& mb = plan.micro_batches[i];
    out << "micro-batch " << i << ": " << mb.token_count << " tokens, fullest "
        << mb.max_rank_tokens << ", " << Number(mb.predicted_seconds) << " s\n";
    for (const SequencePlacement& p : mb.placements) {
      out << "  sequence " << p.sequence << ": " << p.token_count
          << (p.degree == 1 ? " on rank " : " over ranks ") << p.first_rank;
      if (p.degree > 1) out << " .. " << int64_t{p.first_rank} + p.degree - 1;
      out << "\n";
    }
  }
  if (plan.chunk_plan) AppendChunks(*plan.chunk_plan, out);
  out << "blocks";
  for (const Block& b : plan.blocks) {
    out << " [" << b.first_rank << " .. "
        << int64_t{b.first_rank} + b.degree - 1 << "]";
  }
  const PlanSummary& s = plan.summary;
  out << "\npredicted " << Number(s.predicted_seconds) << " s, lower bound "
      << Number(s.lower_bound_seconds) << " s\nroll-backs " << s.roll_back_count
      << ", sharded " << s.sharded_sequence_count << " sequences, "
      << s.sharded_token_count << " tokens, fullest rank " << s.max_rank_tokens
      << "\nimbalance of DP ranks " << Number(s.dp_imbalance) << ", of ranks "
      << Number(s.rank_imbalance) << "\n";
  return out.str();
}

std::vector<std::vector<int64_t>> MicroBatchLengths(const Plan& plan) {
  std::vector<std::vector<int64_t>> lengths;
  for (const MicroBatchPlan& mb : plan.micro_batches) {
    std::vector<int64_t>& of = lengths.emplace_back();
    for (const SequencePlacement& p : mb.placements) {
      of.push_back(p.token_count);
    }
  }
  return lengths;
}

std::vector<int64_t> RankLoads(const Job& job,
                               const MicroBatchPlan& micro_batch) {
  std::vector<int64_t> loads;
  for (int32_t rank = 0; rank < job.pool().ranks(); ++rank) {
    int64_t rows = 0;
    for (const RankSegment& s : RankSegments(micro_batch.placements, rank)) {
      rows += s.rows();
    }
    loads.push_back(rows);
  }
  return loads;
}

}  // namespace skrull::testing
