// What the cudnn backend refuses, to whom that goes, and its options.
#include "skrull/cuda/attention/cudnn/refusal.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>

#include "skrull/tests/cuda/cudnn/attention_rig.h"

namespace skrull::exec::cudnn::testing {

TEST_CASE("cudnn attention: problems it refuses by name", "[cudnn]") {
  const AttentionProblem good = Heads(4, 2);
  struct Case {
    const char* name;
    std::function<void(AttentionProblem*, DeviceInfo*)> change;
    bool forward_too;
  };
  const Case cases[] = {
      {"dtype is float32", [](auto* p, auto*) { p->dtype = DType::kFloat32; },
       true},
      {"dtype is float64", [](auto* p, auto*) { p->dtype = DType::kFloat64; },
       true},
      {"head_dim is 72", [](auto* p, auto*) { p->head_dim = 72; }, true},
      {"head_dim is 144", [](auto* p, auto*) { p->head_dim = 144; }, true},
      {"sm80", [](auto*, auto* d) { d->sm = 80; }, true},
      {"sm89", [](auto*, auto* d) { d->sm = 89; }, true},
      {"sm120", [](auto*, auto* d) { d->sm = 120; }, true},
      {"cuDNN is 90700", [](auto*, auto* d) { d->cudnn_version = 90700; },
       true},
      {"deterministic is true; on sm90",
       [](auto* p, auto*) { p->deterministic = true; }, false},
      {"cuDNN is 91700",
       [](auto* p, auto* d) {
         p->deterministic = true;
         d->sm = 100;
         d->cudnn_version = 91700;
       },
       false}};
  for (const Case& c : cases) {
    INFO(c.name);
    AttentionProblem problem = good;
    RecordingBackend none;
    none.supports = false;
    Rig rig({}, none);
    c.change(&problem, &rig.fake.device);
    CHECK(rig.backend->Supports(problem, Pass::kForward).ok() != c.forward_too);
    const Status status = rig.backend->Supports(problem, Pass::kBackward);
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK_THAT(status.message(),
               Catch::Contains(c.name) && Catch::Contains("other cannot"));
    // With one to fall back to, it is supported, and said once.
    rig.other->supports = true;
    CHECK(rig.lines.empty());
    CHECK(rig.backend->Supports(problem, Pass::kBackward).ok());
    CHECK(rig.backend->Supports(problem, Pass::kBackward).ok());
    REQUIRE(rig.lines.size() == 1);
    CHECK_THAT(rig.lines[0],
               Catch::Contains(c.name) && Catch::Contains("backend other"));
  }
}

TEST_CASE("cudnn attention: deterministic where it can be", "[cudnn]") {
  Rig rig;
  AttentionProblem p = Heads(4, 2);
  p.deterministic = true;
  // Forward passes always are, and of one kind.
  const auto call = MakeCudnnCall(p, Mask::kFull, {{40, 90}}, 0, 3);
  CHECK(rig.backend->Supports(p, Pass::kForward).ok());
  const SegmentBounds& bounds = call->segments.bounds;
  REQUIRE(rig.backend->Prepare(p, bounds, Pass::kForward).ok());
  CHECK(!rig.fake.built().back().deterministic);
  rig.fake.device.sm = 100;
  REQUIRE(rig.backend->Prepare(p, bounds, Pass::kBackward).ok());
  CHECK(rig.fake.built().back().deterministic);
  CHECK(rig.lines.empty());
}

TEST_CASE("cudnn attention: calls that fall back are counted", "[cudnn]") {
  Rig rig;
  AttentionProblem p = Heads(4, 2);
  p.deterministic = true;
  const auto call = MakeCudnnCall(p, Mask::kFull, {{40, 90}}, 0, 3);
  CHECK(*rig.backend->Prepare(p, call->segments.bounds, Pass::kBackward) ==
        100);
  for (int i = 0; i < 3; ++i) {
    CHECK(rig.backend->Backward(BackwardOf(*call), {}, {}) ==
          Status(StatusCode::kAborted, "backward by other"));
  }
  CHECK(rig.fallbacks(Reason::kDeterminism) == 3);
  CHECK(rig.lines.size() == 1);
  CHECK(rig.counters().cudnn_calls == 0);
}

TEST_CASE("cudnn attention: tensors that lie as it cannot read them",
          "[cudnn]") {
  const std::pair<Role, std::function<void(Tensor*)>> cases[] = {
      {Role::kQ, [](Tensor* t) { t->data = static_cast<char*>(t->data) + 2; }},
      {Role::kK, [](Tensor* t) { t->row_stride += 4; }},
      {Role::kV, [](Tensor* t) { t->head_stride = 20, t->row_stride = 80; }},
      {Role::kO,
       [](Tensor* t) { t->row_stride = 16, t->head_stride = 16 * 40; }},
      {Role::kQ, [](Tensor* t) { t->row_stride = int64_t{1} << 30; }},
      {Role::kV, [](Tensor* t) { t->row_stride = int64_t{1} << 62; }},
      {Role::kLse, [](Tensor* t) { t->row_stride = 5; }},
      {Role::kLse, [](Tensor* t) { t->row_stride = 1, t->head_stride = 40; }}};
  for (const auto& [role, change] : cases) {
    INFO(RoleName(role));
    Rig rig;
    const auto call = MakeCudnnCall(Heads(4, 2), Mask::kFull, {{40, 90}}, 0, 3);
    AttentionForward forward = ForwardOf(*call);
    Tensor* const tensors[] = {&forward.q, &forward.k, &forward.v,
                               &forward.o, nullptr,    &forward.lse};
    change(tensors[Index(role)]);
    const int64_t bytes = *rig.backend->Prepare(
        call->problem, call->segments.bounds, Pass::kForward);
    WorkspaceMemory workspace(bytes);
    CHECK(rig.backend->Forward(forward, workspace.view(), {}) ==
          Status(StatusCode::kAborted, "forward by other"));
    CHECK(rig.fallbacks(Reason::kLayout) == 1);
    REQUIRE(rig.lines.size() == 1);
    CHECK_THAT(rig.lines[0],
               Catch::Contains(std::string(": ") + RoleName(role) + " "));
  }
}

TEST_CASE("cudnn attention: strides of one row or head do not matter",
          "[cudnn]") {
  alignas(16) char data[16];
  Tensor t = DenseTensor(data, DType::kBFloat16, 1, 3, 16);
  t.row_stride = 5;
  CHECK(NormalStrides(t) == Strides{48, 16});
  CHECK(!RefuseLayout(Role::kQ, t).has_value());
  t.head_stride = int64_t{1} << 62;
  CHECK(RefuseLayout(Role::kQ, t).has_value());
  t = DenseTensor(data, DType::kBFloat16, 9, 1, 16);
  t.head_stride = 5;
  CHECK(NormalStrides(t) == Strides{16, 16});
  CHECK(!RefuseLayout(Role::kQ, t).has_value());
  t = DenseTensor(data, DType::kFloat32, 1, 3, 1);
  t.row_stride = 5;
  CHECK(!RefuseLayout(Role::kLse, t).has_value());
}

TEST_CASE("cudnn attention: room for the fallback too", "[cudnn]") {
  RecordingBackend large;
  large.bytes = int64_t{1} << 40;
  Rig rig({}, large);
  const auto call = MakeCudnnCall(Heads(4, 2), Mask::kFull, {{40, 90}}, 0, 3);
  CHECK(*rig.backend->Prepare(call->problem, call->segments.bounds,
                              Pass::kForward) == large.bytes);
}

TEST_CASE("cudnn attention: no kernel, and failures of the device", "[cudnn]") {
  Rig rig;
  const auto call = MakeCudnnCall(Heads(4, 2), Mask::kFull, {{40, 90}}, 0, 3);
  const SegmentBounds& bounds = call->segments.bounds;
  rig.fake.on_build = [](const GraphKey&) -> Status {
    return {StatusCode::kDeviceError, "it burns"};
  };
  CHECK(rig.backend->Prepare(call->problem, bounds, Pass::kForward).status() ==
        Status(StatusCode::kDeviceError, "it burns"));
  CHECK(rig.lines.empty());
  rig.fake.on_build = [](const GraphKey&) -> Status {
    return {StatusCode::kPlanBuildFailed, "no engine"};
  };
  CHECK(*rig.backend->Prepare(call->problem, bounds, Pass::kForward) == 100);
  CHECK(rig.backend->Forward(ForwardOf(*call), {}, {}) ==
        Status(StatusCode::kAborted, "forward by other"));
  CHECK(rig.fallbacks(Reason::kNoKernel) == 1);
  REQUIRE(rig.lines.size() == 1);
  CHECK_THAT(rig.lines[0], Catch::Contains("no engine"));
}

TEST_CASE("cudnn attention: without a fallback", "[cudnn]") {
  FakeCudnn fake;
  Events events([](const std::string&) {});
  const auto backend = CreateCudnnAttention(
      {}, &fake, Status(StatusCode::kNotFound, "no such file"), &events);
  CHECK(backend->kv_tail_rows() == 128);
  AttentionProblem p = Heads(4, 2);
  CHECK(backend->Supports(p, Pass::kBackward).ok());
  p.deterministic = true;
  const Status status = backend->Supports(p, Pass::kBackward);
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK_THAT(status.message(), Catch::Contains("deterministic is true") &&
                                   Catch::Contains("no such file"));
  const auto call = MakeCudnnCall(p, Mask::kFull, {{40, 90}}, 0, 3);
  CHECK(backend->Prepare(p, call->segments.bounds, Pass::kBackward).status() ==
        status);
  CHECK(backend->Backward(BackwardOf(*call), {}, {}) == status);

  // An LSE that the other backend cannot share is as bad as none.
  RecordingBackend head_major;
  head_major.order = LseOrder::kHeadMajor;
  Rig rig({}, head_major);
  CHECK_THAT(rig.backend->Supports(p, Pass::kBackward).message(),
             Catch::Contains("other keeps its LSE as [heads, rows]"));
}

TEST_CASE("cudnn options: from the environment", "[cudnn]") {
  const auto from = [](const char* directory, const char* bytes) {
    return OptionsFrom([=](const char* name) {
      return std::string(name) == "SKRULL_CUDNN_PLAN_DIR" ? directory : bytes;
    });
  };
  CHECK(from(nullptr, nullptr)->plan_directory.empty());
  CHECK(from(nullptr, "")->workspace_bytes == int64_t{1} << 30);
  CHECK(from("/a", "0")->plan_directory == "/a");
  CHECK(from("/a", "5000000000")->workspace_bytes == 5000000000);
  for (const char* bad : {"-1", "1G", " 1", "1 ", "99999999999999999999"}) {
    const Status status = from(nullptr, bad).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(),
               Catch::Contains("SKRULL_CUDNN_WORKSPACE_BYTES is '" +
                               std::string(bad) + "'"));
  }
}

}  // namespace skrull::exec::cudnn::testing
