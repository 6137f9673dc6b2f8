#include "skrull/cuda/check/device_check.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <memory>
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

// Like std::printf. REQUIRES: the result has less than 256 characters.
__attribute__((format(printf, 1, 2))) std::string Format(const char* format,
                                                         ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

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
      const CheckSizes& sizes, CheckReport* report)
      : device_(device), backend_(backend), sizes_(sizes), report_(report) {}

  void All() {
    Begin("correctness");
    for (const Heads& heads : sizes_.heads) {
      for (const DType dtype : sizes_.dtypes) Correctness(heads, dtype);
    }
    Begin("attention");
    for (const Heads& heads : sizes_.heads) Attention(heads);
    Begin("rows");
    for (const Heads& heads : sizes_.heads) RowCopies(heads);
    Begin("overlap");
    for (const Heads& heads : sizes_.heads) Overlap(heads);
    Begin("virtual_ranks");
    VirtualRanks();
  }

 private:
  void Begin(const char* section) {
    section_ = section;
    report_->json[section] = ordered_json::array();
    report_->text +=
        std::string(report_->text.empty() ? "" : "\n") + section + "\n";
  }

  void Fail(const std::string& name, const std::string& why) {
    report_->failures.push_back(section_ + ", " + name + ": " + why);
    Add(name, {{"failure", why}}, "FAILED: " + why);
  }

  void Add(const std::string& name, ordered_json values,
           const std::string& text) {
    ordered_json row = {{"case", name}};
    row.update(values);
    report_->json[section_].push_back(std::move(row));
    report_->text += "  " + name + ": " + text + "\n";
  }

  // A result against its reference and the limit of its type.
  void AddError(const std::string& name, DType dtype,
                const Result<AttentionOutputs>& outputs,
                const Result<AttentionOutputs>& reference) {
    for (const Status& status : {outputs.status(), reference.status()}) {
      if (!status.ok()) return Fail(name, status.ToString());
    }
    const AttentionError error = Compare(*outputs, *reference);
    const std::string text = Format("o %.2e, gradients %.2e, lse %.2e", error.o,
                                    error.gradients, error.lse);
    if (!error.within(LimitOf(dtype))) return Fail(name, "off by " + text);
    Add(name,
        {{"o", error.o}, {"gradients", error.gradients}, {"lse", error.lse}},
        text);
  }

  void Correctness(const Heads& heads, DType dtype) {
    const exec::AttentionProblem problem = ProblemOf(heads, dtype);
    // Whole sequences, and queries at the end of more keys.
    exec::SegmentList whole, ends;
    for (const int32_t length : sizes_.lengths) {
      whole.Add(length, length);
      ends.Add((length + 2) / 3, length);
    }
    for (const auto& [list, name] :
         {std::pair(&whole, "whole"), std::pair(&ends, "q < kv")}) {
      const AttentionInputs inputs = RandomInputs(
          1, problem, list->bounds().total_q, list->bounds().total_kv);
      AddError(NameOf(heads, dtype) + ", " + name, dtype,
               RunAttention(device_, backend_, problem, *list, inputs),
               RunReference(problem, *list, inputs));
    }
  }

  void VirtualRanks() {
    const DType dtype = sizes_.dtypes[0];
    const exec::AttentionProblem problem = ProblemOf(sizes_.heads[0], dtype);
    for (const int32_t ranks : {2, 4, 8}) {
      const std::string name =
          std::to_string(ranks) + " ranks, " + NameOf(sizes_.heads[0], dtype);
      const auto pool = profile::CreateRankPool(
          {.name = "device", .ranks = ranks, .device = device_});
      if (!pool.ok()) {
        Fail(name, pool.status().ToString());
        continue;
      }
      const std::vector<SequencePlacement> placements =
          MixedPlacements(ranks, sizes_.rank_tokens);
      const int64_t rows = CountRows(placements);
      const AttentionInputs inputs = RandomInputs(2, problem, rows, rows);
      exec::SegmentList dense;
      for (const SequencePlacement& p : placements) {
        dense.Add(p.token_count, p.token_count);
      }
      AddError(name, dtype,
               RunRanks(backend_, pool->get(), problem, placements, inputs),
               RunReference(problem, dense, inputs));
    }
  }

  void Attention(const Heads& heads) {
    const DType dtype = sizes_.dtypes[0];
    const int32_t longest = sizes_.speed_tokens.back();
    std::vector<std::pair<std::string, std::vector<Share>>> cases;
    for (const int32_t tokens : sizes_.speed_tokens) {
      cases.push_back({std::to_string(tokens), {{.tokens = tokens}}});
    }
    const int32_t packed = longest / sizes_.pack_tokens;
    cases.push_back({Format("%d x %d", packed, sizes_.pack_tokens),
                     std::vector<Share>(static_cast<size_t>(packed),
                                        {.tokens = sizes_.pack_tokens})});
    cases.push_back(
        {Format("%d / 8", longest), {{.tokens = longest, .degree = 8}}});
    for (const auto& [label, shares] : cases) {
      const std::string name = NameOf(heads, dtype) + ", " + label;
      const Result<AttentionSpeed> speed = MeasureAttention(
          device_, backend_, ProblemOf(heads, dtype), shares, sizes_.measure);
      if (!speed.ok()) {
        Fail(name, speed.status().ToString());
        continue;
      }
      Add(name,
          {{"forward_seconds", speed->forward.seconds},
           {"forward_spread", speed->forward.spread},
           {"forward_teraflops", speed->forward_teraflops()},
           {"backward_seconds", speed->backward.seconds},
           {"backward_spread", speed->backward.spread},
           {"backward_teraflops", speed->backward_teraflops()}},
          Format("forward %.4g ms %.3g TFLOP/s, backward %.4g ms %.3g TFLOP/s",
                 1e3 * speed->forward.seconds, speed->forward_teraflops(),
                 1e3 * speed->backward.seconds, speed->backward_teraflops()));
    }
  }

  void RowCopies(const Heads& heads) {
    const DType dtype = sizes_.dtypes[0];
    const int32_t tokens = sizes_.speed_tokens.back();
    const std::string name =
        NameOf(heads, dtype) + Format(", %d over 8", tokens);
    const Result<RowSpeed> speed = MeasureRows(device_, ProblemOf(heads, dtype),
                                               tokens, 8, sizes_.measure);
    if (!speed.ok()) return Fail(name, speed.status().ToString());
    const auto rate = [](const profile::Timing& timing, int64_t bytes) {
      return timing.seconds > 0
                 ? 1e-9 * static_cast<double>(bytes) / timing.seconds
                 : 0;
    };
    const double pack = rate(speed->pack, speed->pack_bytes);
    const double unpack = rate(speed->unpack, speed->unpack_bytes);
    const double fold = rate(speed->fold, speed->fold_bytes);
    Add(name,
        {{"pack_gigabytes_per_second", pack},
         {"unpack_gigabytes_per_second", unpack},
         {"fold_gigabytes_per_second", fold}},
        Format("pack %.3g, unpack %.3g, fold %.3g GB/s", pack, unpack, fold));
  }

  void Overlap(const Heads& heads) {
    const DType dtype = sizes_.dtypes[0];
    const int32_t tokens = sizes_.speed_tokens.back();
    const std::string name = NameOf(heads, dtype) + Format(", %d", tokens);
    const Result<OverlapSpeed> speed = MeasureOverlap(
        device_, backend_, ProblemOf(heads, dtype), tokens, sizes_.measure);
    if (!speed.ok()) return Fail(name, speed.status().ToString());
    Add(name,
        {{"attention_seconds", speed->attention_seconds},
         {"copy_seconds", speed->copy_seconds},
         {"both_seconds", speed->both_seconds},
         {"efficiency", speed->efficiency()}},
        Format(
            "attention %.4g ms, copies %.4g ms, both %.4g ms: %.0f %% hidden",
            1e3 * speed->attention_seconds, 1e3 * speed->copy_seconds,
            1e3 * speed->both_seconds, 100 * speed->efficiency()));
  }

  exec::Device* const device_;
  exec::AttentionBackend* const backend_;
  const CheckSizes& sizes_;
  CheckReport* const report_;
  std::string section_;
};

}  // namespace

CheckSizes CheckSizes::Full(exec::MemoryKind memory) {
  CheckSizes sizes = {
      .heads = {{14, 2, 64}, {28, 4, 128}},
      .dtypes = {DType::kBFloat16, DType::kFloat16},
      .lengths = {1, 63, 64, 65, 127, 129, 300, 1000},
      .rank_tokens = 300,
      .speed_tokens = {512, 1024, 2048, 4096, 8192, 16384, 32768},
      .pack_tokens = 1024};
  if (memory == exec::MemoryKind::kHost) sizes.dtypes = {DType::kFloat32};
  return sizes;
}

CheckSizes CheckSizes::Tiny() {
  return {.heads = {{4, 2, 16}},
          .dtypes = {DType::kFloat32, DType::kBFloat16},
          .lengths = {1, 15, 16, 17, 40},
          .rank_tokens = 24,
          .speed_tokens = {64, 128},
          .pack_tokens = 32,
          .measure = {.warm_ups = 1, .samples = 3}};
}

void RunDeviceCheck(exec::Device* device, exec::AttentionBackend* backend,
                    const CheckSizes& sizes, CheckReport* report) {
  Run(device, backend, sizes, report).All();
}

}  // namespace skrull::check
