#include "skrull/cuda/check/device_check.h"

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "skrull/cuda/check/attention_sample.h"
#include "skrull/cuda/check/speed.h"
#include "skrull/cuda/check/virtual_ranks.h"
#include "skrull/cuda/profile/rank_pools.h"

namespace skrull::check {
namespace {

using exec::DType;
using exec::Result;
using exec::Status;
using nlohmann::ordered_json;
using profile::Share;

// Ranks of the block whose shards are measured.
constexpr int32_t kRanks = 8;

exec::AttentionProblem ProblemOf(const Heads& heads, DType dtype) {
  return {.dtype = dtype,
          .q_heads = heads.q,
          .kv_heads = heads.kv,
          .head_dim = heads.dim,
          .scale = 1 / std::sqrt(static_cast<double>(heads.dim)),
          .deterministic = false};
}

std::string NameOf(const Heads& heads, DType dtype) {
  return Format("%d/%d heads of %d %s", heads.q, heads.kv, heads.dim,
                std::string(exec::DTypeName(dtype)).c_str());
}

class Run {
 public:
  Run(exec::Device* device, exec::AttentionBackend* backend,
      const CheckSizes& sizes, Budget* budget, CheckReport* report)
      : device_(device),
        backend_(backend),
        sizes_(sizes),
        budget_(budget),
        report_(report) {}

  void Correctness() {
    SectionWriter section("correctness", report_);
    for (const auto* list : {&sizes_.heads, &sizes_.more_heads}) {
      for (const Heads& heads : *list) {
        for (const DType dtype : sizes_.dtypes) {
          CompareSegments(heads, dtype, &section);
        }
      }
    }
  }

  void Attention() {
    SectionWriter section("attention", report_);
    const int32_t packed = sizes_.speed_tokens.back() / sizes_.pack_tokens;
    for (const Heads& heads : sizes_.heads) {
      for (const int32_t tokens : sizes_.speed_tokens) {
        Speed(heads, std::to_string(tokens), {{.tokens = tokens}}, 0, &section);
      }
      Speed(heads, Format("%d x %d", packed, sizes_.pack_tokens),
            std::vector<Share>(static_cast<size_t>(packed),
                               {.tokens = sizes_.pack_tokens}),
            0, &section);
    }
  }

  void Zigzag() {
    SectionWriter section("zigzag", report_);
    for (const Heads& heads : sizes_.heads) {
      const int32_t tokens = sizes_.speed_tokens.back();
      const std::optional<AttentionSpeed> dense = Speed(
          heads, Format("%d dense", tokens), {{.tokens = tokens}}, 0, &section);
      for (const int32_t rank : {0, kRanks - 1}) {
        const std::string label =
            Format("%d on rank %d of %d", tokens, rank, kRanks);
        const std::optional<AttentionSpeed> shard =
            Speed(heads, label, {{.tokens = tokens, .degree = kRanks}}, rank,
                  &section);
        if (!dense || !shard) continue;
        const std::string name = Name(heads) + ", " + label;
        section.AddTarget(
            name + ", forward",
            ShardEfficiency(dense->forward, shard->forward, kRanks),
            kZigzagTarget);
        section.AddTarget(
            name + ", backward",
            ShardEfficiency(dense->backward, shard->backward, kRanks),
            kZigzagTarget);
      }
    }
  }

  void RowCopies() {
    SectionWriter section("rows", report_);
    for (const Heads& heads : sizes_.heads) RowCopies(heads, &section);
  }

  void Overlap() {
    SectionWriter section("overlap", report_);
    for (const Heads& heads : sizes_.heads) Overlap(heads, &section);
  }

  void VirtualRanks() {
    SectionWriter section("virtual_ranks", report_);
    for (const int32_t ranks : {2, 4, 8}) VirtualRanks(ranks, &section);
  }

 private:
  std::string Name(const Heads& heads) const {
    return NameOf(heads, sizes_.dtypes[0]);
  }

  // A result against its reference and the limit of its type.
  static void AddError(const std::string& name, DType dtype,
                       const Result<AttentionOutputs>& outputs,
                       const Result<AttentionOutputs>& reference,
                       SectionWriter* section) {
    for (const Status& status : {outputs.status(), reference.status()}) {
      if (!status.ok()) return section->Fail(name, status.ToString());
    }
    const AttentionError error = Compare(*outputs, *reference);
    const std::string text = Format("o %.2e, gradients %.2e, lse %.2e", error.o,
                                    error.gradients, error.lse);
    if (!error.within(LimitOf(dtype))) {
      return section->Fail(name, "off by " + text);
    }
    section->Add(
        name,
        {{"o", error.o}, {"gradients", error.gradients}, {"lse", error.lse}},
        text);
  }

  // Whole sequences, queries at the end of more keys, and a step of a ring.
  void CompareSegments(const Heads& heads, DType dtype,
                       SectionWriter* section) {
    const exec::AttentionProblem problem = ProblemOf(heads, dtype);
    exec::SegmentList whole, ends, full;
    full.mask = exec::Mask::kFull;
    for (const int32_t length : sizes_.lengths) {
      whole.Add(length, length);
      ends.Add((length + 2) / 3, length);
      full.Add(length, (length + 1) / 2);
    }
    for (const auto& [list, label] :
         {std::pair(&whole, "whole"), std::pair(&ends, "q < kv"),
          std::pair(&full, "full mask")}) {
      const AttentionInputs inputs = RandomInputs(
          1, problem, list->bounds().total_q, list->bounds().total_kv);
      const Result<AttentionOutputs> reference =
          RunReference(problem, *list, inputs);
      const std::string name = NameOf(heads, dtype) + ", ";
      AddError(name + label, dtype,
               RunAttention(device_, backend_, problem, *list, inputs),
               reference, section);
      if (list != &whole) continue;
      AddError(name + "NaN behind queries", dtype,
               RunAttention(device_, backend_, problem, *list, inputs,
                            QueryTail::kNan),
               reference, section);
      Repeat(name + "deterministic", problem, *list, inputs, reference,
             section);
    }
  }

  // Two runs that are asked to be deterministic.
  void Repeat(const std::string& name, exec::AttentionProblem problem,
              const exec::SegmentList& list, const AttentionInputs& inputs,
              const Result<AttentionOutputs>& reference,
              SectionWriter* section) {
    problem.deterministic = true;
    for (const exec::Pass pass :
         {exec::Pass::kForward, exec::Pass::kBackward}) {
      const Status status = backend_->Supports(problem, pass);
      if (!status.ok()) return section->Skip(name, status.ToString());
    }
    const Result<AttentionOutputs> first =
        RunAttention(device_, backend_, problem, list, inputs);
    const Result<AttentionOutputs> second =
        RunAttention(device_, backend_, problem, list, inputs);
    if (first.ok() && second.ok() && !SameBits(*first, *second)) {
      return section->Fail(name, "two runs differ");
    }
    AddError(name, problem.dtype, first.ok() ? second : first, reference,
             section);
  }

  void VirtualRanks(int32_t ranks, SectionWriter* section) {
    const DType dtype = sizes_.dtypes[0];
    const exec::AttentionProblem problem = ProblemOf(sizes_.heads[0], dtype);
    const std::string name =
        std::to_string(ranks) + " ranks, " + Name(sizes_.heads[0]);
    const std::vector<SequencePlacement> placements =
        MixedPlacements(ranks, sizes_.rank_tokens);
    const int64_t rows = CountRows(placements);
    const AttentionInputs inputs = RandomInputs(2, problem, rows, rows);
    exec::SegmentList dense;
    for (const SequencePlacement& p : placements) {
      dense.Add(p.token_count, p.token_count);
    }
    const Result<AttentionOutputs> reference =
        RunReference(problem, dense, inputs);
    for (const auto& [exchange, label] :
         {std::pair(exec::Exchange::kAllGather, ", all-gather"),
          std::pair(exec::Exchange::kRing, ", ring")}) {
      const auto pool = profile::CreateRankPool(
          {.name = "device", .ranks = ranks, .device = device_});
      if (!pool.ok()) {
        section->Fail(name + label, pool.status().ToString());
        continue;
      }
      AddError(name + label, dtype,
               RunRanks(backend_, pool->get(), problem, exchange, placements,
                        inputs),
               reference, section);
    }
  }

  // In multiply-adds of a forward pass, about: what the budget counts.
  static double WorkOf(const Heads& heads, std::span<const Share> shares) {
    double work = 0;
    for (const Share& share : shares) {
      const auto tokens = static_cast<double>(share.tokens);
      work += tokens * tokens / share.degree * heads.q * heads.dim;
    }
    return work;
  }

  // Runs a case that measures, or skips it.
  template <class F>
  void Measured(const std::string& name, double work, const F& run,
                SectionWriter* section) {
    if (!budget_->Run(work, run)) {
      section->Skip(name, "it would not end within --budget-seconds");
    }
  }

  // Returns what it adds to the section; nothing if it failed or was skipped.
  std::optional<AttentionSpeed> Speed(const Heads& heads,
                                      const std::string& label,
                                      const std::vector<Share>& shares,
                                      int32_t rank, SectionWriter* section) {
    const std::string name = Name(heads) + ", " + label;
    std::optional<AttentionSpeed> measured;
    const auto run = [&] {
      const Result<AttentionSpeed> speed = MeasureAttention(
          device_, backend_, ProblemOf(heads, sizes_.dtypes[0]), shares, rank,
          sizes_.measure);
      if (!speed.ok()) {
        section->Fail(name, speed.status().ToString());
        return false;
      }
      section->Add(
          name,
          {{"forward_seconds", speed->forward.seconds},
           {"forward_spread", speed->forward.spread},
           {"forward_teraflops", speed->forward_teraflops()},
           {"backward_seconds", speed->backward.seconds},
           {"backward_spread", speed->backward.spread},
           {"backward_teraflops", speed->backward_teraflops()}},
          Format("forward %.4g ms %.3g TFLOP/s, backward %.4g ms %.3g TFLOP/s",
                 1e3 * speed->forward.seconds, speed->forward_teraflops(),
                 1e3 * speed->backward.seconds, speed->backward_teraflops()));
      measured = *speed;
      return true;
    };
    Measured(name, WorkOf(heads, shares), run, section);
    return measured;
  }

  void RowCopies(const Heads& heads, SectionWriter* section) {
    const int32_t tokens = sizes_.speed_tokens.back();
    const std::string name =
        Name(heads) + Format(", %d over %d", tokens, kRanks);
    // Its time says nothing of attention's.
    const auto run = [&] {
      const Result<RowSpeed> speed =
          MeasureRows(device_, ProblemOf(heads, sizes_.dtypes[0]), tokens,
                      kRanks, sizes_.measure);
      if (!speed.ok()) {
        section->Fail(name, speed.status().ToString());
        return false;
      }
      for (const auto& [kernel, label] : {std::pair(&speed->pack, "pack"),
                                          std::pair(&speed->unpack, "unpack"),
                                          std::pair(&speed->fold, "fold")}) {
        section->Add(
            name + ", " + label,
            {{"gigabytes_per_second", kernel->gigabytes_per_second()},
             {"share_of_copy", kernel->share()}},
            Format("%.3g GB/s, %.0f %% of a plain copy",
                   kernel->gigabytes_per_second(), 100 * kernel->share()));
        if (kernel == &speed->fold) continue;
        section->AddTarget(name + ", " + label, kernel->share(), kRowsTarget);
      }
      return false;
    };
    Measured(name, static_cast<double>(tokens) * heads.kv * heads.dim, run,
             section);
  }

  void Overlap(const Heads& heads, SectionWriter* section) {
    const int32_t tokens = sizes_.speed_tokens.back();
    const std::string name = Name(heads) + Format(", %d", tokens);
    const auto run = [&] {
      const Result<OverlapSpeed> speed =
          MeasureOverlap(device_, backend_, ProblemOf(heads, sizes_.dtypes[0]),
                         tokens, sizes_.measure);
      if (!speed.ok()) {
        section->Fail(name, speed.status().ToString());
        return false;
      }
      section->Add(
          name,
          {{"attention_seconds", speed->attention_seconds},
           {"copy_seconds", speed->copy_seconds},
           {"both_seconds", speed->both_seconds},
           {"efficiency", speed->efficiency()}},
          Format(
              "attention %.4g ms, copies %.4g ms, both %.4g ms: %.0f %% hidden",
              1e3 * speed->attention_seconds, 1e3 * speed->copy_seconds,
              1e3 * speed->both_seconds, 100 * speed->efficiency()));
      section->AddTarget(name, speed->efficiency(), kHiddenTarget);
      return true;
    };
    const Share whole = {.tokens = tokens};
    Measured(name, WorkOf(heads, {&whole, 1}), run, section);
  }

  exec::Device* const device_;
  exec::AttentionBackend* const backend_;
  const CheckSizes& sizes_;
  Budget* const budget_;
  CheckReport* const report_;
};

}  // namespace

CheckSizes CheckSizes::Full(exec::MemoryKind memory) {
  CheckSizes sizes = {
      .heads = {{14, 2, 64}, {28, 4, 128}},
      .more_heads = {{4, 4, 64}, {4, 4, 128}},
      .dtypes = {DType::kBFloat16, DType::kFloat16},
      .lengths = {1, 63, 64, 65, 127, 129, 300, 1000},
      .rank_tokens = 300,
      .speed_tokens = {512, 1024, 2048, 4096, 8192, 16384, 32768},
      .pack_tokens = 1024};
  if (memory == exec::MemoryKind::kHost) sizes.dtypes = {DType::kFloat32};
  return sizes;
}

CheckSizes CheckSizes::Tiny(exec::MemoryKind memory) {
  CheckSizes sizes = {.heads = {{4, 2, 64}},
                      .more_heads = {{2, 2, 64}, {7, 1, 64}},
                      .dtypes = {DType::kBFloat16, DType::kFloat16},
                      .lengths = {1, 15, 16, 17, 70},
                      .rank_tokens = 24,
                      .speed_tokens = {64, 128},
                      .pack_tokens = 32,
                      .measure = {.warm_ups = 1, .samples = 3}};
  if (memory == exec::MemoryKind::kHost) {
    sizes.heads = {{4, 2, 16}};
    sizes.more_heads = {{2, 2, 16}, {7, 1, 16}};
    sizes.dtypes = {DType::kFloat32, DType::kBFloat16};
  }
  return sizes;
}

void RunDeviceCheck(exec::Device* device, exec::AttentionBackend* backend,
                    const CheckSizes& sizes,
                    const std::set<std::string>& sections, Budget* budget,
                    CheckReport* report) {
  Run run(device, backend, sizes, budget, report);
  const auto wanted = [&](const char* section) {
    return sections.empty() || sections.contains(section);
  };
  if (wanted("correctness")) run.Correctness();
  if (wanted("attention")) run.Attention();
  if (wanted("zigzag")) run.Zigzag();
  if (wanted("rows")) run.RowCopies();
  if (wanted("overlap")) run.Overlap();
  if (wanted("virtual_ranks")) run.VirtualRanks();
}

}  // namespace skrull::check
