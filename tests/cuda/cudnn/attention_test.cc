// The cudnn backend over a fake cuDNN, against dense attention: what graphs are
// told, groups of heads, staged gradients, and workspace.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "skrull/tests/cuda/cudnn/attention_rig.h"

namespace skrull::exec::cudnn::testing {

TEST_CASE("cudnn attention: equals dense attention", "[cudnn]") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    const int32_t ratios[] = {1, 2, 7};
    const auto kv_heads = static_cast<int32_t>(1 + random() % 4);
    AttentionProblem p = Heads(kv_heads * ratios[random() % 3], kv_heads);
    if (seed % 3 == 0) p.dtype = DType::kFloat16;
    const Mask mask = seed % 2 == 0 ? Mask::kCausalBottomRight : Mask::kFull;
    std::vector<Lengths> lengths;
    for (uint64_t n = 1 + random() % 5; n > 0; --n) {
      const auto q = static_cast<int32_t>(1 + random() % 40);
      const int32_t least = mask == Mask::kFull ? 1 : q;
      lengths.push_back({q, least + static_cast<int32_t>(random() % 50)});
    }
    // Gradients that are not dense must fit in groups of heads.
    const int32_t gap = kv_heads > 1 && p.q_heads == 7 * kv_heads ? 8 : 0;
    INFO("seed " << seed);
    Rig rig;
    const auto call = MakeCudnnCall(p, mask, lengths, gap, seed);
    RunAndCompare(&rig, *call);
    CHECK(rig.counters().cudnn_calls == 2);
    CHECK(rig.lines.empty());
  }
}

TEST_CASE("cudnn attention: groups of key heads bound the workspace",
          "[cudnn]") {
  const std::vector<Lengths> lengths = {{30, 50}, {9, 300}};
  const AttentionProblem p = Heads(24, 12);
  int64_t whole = 0;
  {
    Rig rig;
    whole = RunAndCompare(&rig, *MakeCudnnCall(p, Mask::kFull, lengths, 0, 1));
  }
  int64_t last = whole;
  for (const int32_t groups : {2, 3, 4, 6, 12}) {
    Rig rig({.plan_directory = "", .workspace_bytes = last - 1});
    last = RunAndCompare(&rig, *MakeCudnnCall(p, Mask::kFull, lengths, 0, 1));
    CHECK(rig.fake.built().back().kv_heads == 12 / groups);
    CHECK(rig.fake.built().back().q_heads == 24 / groups);
    CHECK(rig.lines.empty());
  }
  CHECK(last < whole / 4);
  // A single key head needs more than that.
  Rig rig({.plan_directory = "", .workspace_bytes = last - 1});
  const auto call = MakeCudnnCall(p, Mask::kFull, lengths, 0, 1);
  CHECK(*rig.backend->Prepare(p, call->segments.bounds, Pass::kBackward) ==
        100);
  WorkspaceMemory workspace(100);
  CHECK(rig.backend->Backward(BackwardOf(*call), workspace.view(), {}) ==
        Status(StatusCode::kAborted, "backward by other"));
  CHECK(rig.fallbacks(Reason::kWorkspace) == 1);
}

TEST_CASE("cudnn attention: a call uses no more than is allowed", "[cudnn]") {
  const AttentionProblem p = Heads(24, 12);
  const auto call = MakeCudnnCall(p, Mask::kFull, {{30, 50}, {9, 300}}, 0, 1);
  Rig whole;
  const int64_t bytes = RunAndCompare(&whole, *call);
  Rig rig({.plan_directory = "", .workspace_bytes = bytes - 1});
  RunAndCompare(&rig, *call);
  const size_t built = rig.fake.built().size();
  WorkspaceMemory large(2 * bytes);
  REQUIRE(rig.backend->Backward(BackwardOf(*call), large.view(), {}).ok());
  CHECK(rig.fake.built().size() == built);
  CHECK(rig.fake.built().back().kv_heads == 6);
}

// Gradients inside wider rows would have float32 sums as wide: instead they are
// staged, in what Prepare asked for.
TEST_CASE("cudnn attention: gradients that are not dense are staged",
          "[cudnn]") {
  Rig rig;
  const auto call =
      MakeCudnnCall(Heads(8, 4), Mask::kCausalBottomRight, {{40, 90}}, 8, 3);
  RunAndCompare(&rig, *call);
  const GraphKey key = rig.fake.built().back();
  CHECK(key.kv_heads < 4);
  CHECK(key.of(Role::kDK) == Strides{key.kv_heads * 16, 16});
  CHECK(key.of(Role::kK) == NormalStrides(call->k.view()));
}

TEST_CASE("cudnn attention: staged gradients that do not fit", "[cudnn]") {
  Rig rig;
  const auto call = MakeCudnnCall(Heads(1, 1), Mask::kFull, {{40, 90}}, 8, 3);
  const int64_t bytes = *rig.backend->Prepare(
      call->problem, call->segments.bounds, Pass::kBackward);
  WorkspaceMemory workspace(bytes);
  CHECK(rig.backend->Backward(BackwardOf(*call), workspace.view(), {}) ==
        Status(StatusCode::kAborted, "backward by other"));
  REQUIRE(rig.lines.size() == 1);
  CHECK_THAT(rig.lines[0], Catch::Contains("dq, dk or dv is not dense"));
}

TEST_CASE("cudnn attention: a workspace that Prepare did not ask for",
          "[cudnn]") {
  Rig rig;
  const auto call = MakeCudnnCall(Heads(4, 2), Mask::kFull, {{40, 90}}, 0, 3);
  const int64_t needed = *rig.backend->Prepare(
      call->problem, call->segments.bounds, Pass::kForward);
  WorkspaceMemory workspace(needed - 1);
  const Status status =
      rig.backend->Forward(ForwardOf(*call), workspace.view(), {});
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Catch::Contains(std::to_string(needed)));
  CHECK(rig.backend->Forward(ForwardOf(*call), {nullptr, needed}, {}).code() ==
        StatusCode::kInvalidArgument);
  CHECK(rig.counters().cudnn_calls == 0);
}

TEST_CASE("cudnn attention: a call that is not enqueued is not counted",
          "[cudnn]") {
  Rig rig;
  const auto call = MakeCudnnCall(Heads(4, 2), Mask::kFull, {{40, 90}}, 0, 3);
  WorkspaceMemory workspace(*rig.backend->Prepare(
      call->problem, call->segments.bounds, Pass::kForward));
  AttentionForward forward = ForwardOf(*call);
  forward.segments.device_cu_kv = nullptr;
  CHECK(rig.backend->Forward(forward, workspace.view(), {}).code() ==
        StatusCode::kInvalidArgument);
  CHECK(rig.counters().cudnn_calls == 0);
  forward.segments.device_cu_kv = call->segments.device_cu_kv;
  CHECK(rig.backend->Forward(forward, workspace.view(), {}).ok());
  CHECK(rig.counters().cudnn_calls == 1);
}

}  // namespace skrull::exec::cudnn::testing
