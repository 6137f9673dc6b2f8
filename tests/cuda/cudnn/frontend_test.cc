// The graphs that the backend can emit, given to the cuDNN that this build
// links, for GPUs that are not here: described by what cuDNN would tell of
// them.
//
//   cudnn_frontend_test support   asks whether there are kernels
//   cudnn_frontend_test build     builds plans, compares their workspace with
//                                 what graph_workspace.h says, saves and loads
//                                 them
//
// Either needs some libcuda.so.1 to load: for `support` the stub of the CUDA
// toolkit will do, `build` wants one whose functions succeed. Exit status 77:
// this cuDNN does not know enough.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>

#include "cudnn.h"
#include "skrull/cuda/attention/cudnn/call_split.h"
#include "skrull/cuda/attention/cudnn/frontend_graphs.h"
#include "skrull/cuda/attention/cudnn/refusal.h"
#include "skrull/tests/cuda/cudnn/graph_workspace.h"

namespace skrull::exec::cudnn::testing {
namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE

int failures = 0;

void Check(bool good, const std::string& what, const Status& status) {
  if (!good) ++failures;
  std::printf("%s %s: %s\n", good ? "ok    " : "FAILED", what.c_str(),
              status.ToString().substr(0, 300).c_str());
}

struct Chip {
  int32_t sm;
  const char* name;
  int processors, shared_bytes, cache_bytes;
};

// Written by hand from public figures: what the choice of kernels depends on.
constexpr Chip kChips[] = {
    {80, "NVIDIA A100-SXM4-80GB", 108, 166912, 41943040},
    {90, "NVIDIA H200", 132, 232448, 62914560},
    {100, "NVIDIA B200", 148, 232448, 132644864},
    {120, "NVIDIA RTX PRO 6000", 188, 101376, 134217728}};

GraphTarget Gpu(int32_t sm) {
  const Chip* const chip = std::ranges::find(kChips, sm, &Chip::sm);
  char json[1024];
  std::snprintf(
      json, sizeof(json),
      R"({"deviceVer":%d,"deviceName":"%s","multiProcessorCount":%d,)"
      R"("maxSharedMemoryPerBlockOptin":%d,"l2CacheSize":%d,)"
      R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)"
      R"("maxGridSize":[2147483647,65535,65535],"warpSize":32,)"
      R"("maxBlockSize":[1024,1024,64],"maxThreadsPerBlock":1024,)"
      R"("regsPerBlock":65536,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
      R"("maxThreadsPerSM":2048,"totalGlobalMem":85000000000,)"
      R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,)"
      R"("supportCoopLaunch":1,"isTccDriver":0,"pciDeviceId":0,)"
      R"("cudaDeviceId":0,"driverVer":13000})",
      sm * 10, chip->name, chip->processors, chip->shared_bytes,
      chip->cache_bytes);
  return {.handles = nullptr, .device_properties = json, .sm = sm};
}

struct Model {
  int32_t q_heads, kv_heads, head_dim;
};
constexpr Model kSmall = {14, 2, 64};   // of 0.5 billion parameters
constexpr Model kLarge = {28, 4, 128};  // of 7 billion

CallShape Shape(const Model& model, Pass pass, Mask mask,
                const SegmentBounds& rows) {
  const AttentionProblem problem{.dtype = DType::kBFloat16,
                                 .q_heads = model.q_heads,
                                 .kv_heads = model.kv_heads,
                                 .head_dim = model.head_dim,
                                 .scale = 0.1,
                                 .deterministic = false};
  SegmentBounds bounds = rows;
  bounds.mask = mask;
  return DenseShape(problem, bounds, pass);
}

// One long sequence; a mix; a sharded call, whose keys are more than queries.
constexpr SegmentBounds kOne = {1, 32768, 32768, 32768, 32768, Mask::kFull};
constexpr SegmentBounds kMix = {25, 4000, 4000, 26000, 26000, Mask::kFull};
constexpr SegmentBounds kSharded = {30, 2000, 30000, 8000, 65000, Mask::kFull};
constexpr SegmentBounds kTiny = {1, 1, 1, 1, 1, Mask::kFull};

std::string NameOf(const GraphKey& key, int32_t sm) {
  return "sm" + std::to_string(sm) + " " + ToText(key);
}

void ExpectSupport(const GraphKey& key, int32_t sm) {
  const Status status = CheckGraph(key, Gpu(sm));
  Check(status.ok(), NameOf(key, sm), status);
}

void ExpectNone(const GraphKey& key, int32_t sm) {
  const Status status = CheckGraph(key, Gpu(sm));
  Check(status.code() == StatusCode::kPlanBuildFailed, NameOf(key, sm), status);
}

void Support() {
  constexpr Pass kPasses[] = {Pass::kForward, Pass::kBackward};
  for (const int32_t sm : {90, 100}) {
    for (const Pass pass : kPasses) {
      for (const Model& model : {kSmall, kLarge}) {
        for (const Mask mask : {Mask::kCausalBottomRight, Mask::kFull}) {
          ExpectSupport(KeyOf(Shape(model, pass, mask, kSharded), 1), sm);
        }
        // A part of the heads, and other shapes.
        const Mask causal = Mask::kCausalBottomRight;
        ExpectSupport(KeyOf(Shape(model, pass, causal, kMix), model.kv_heads),
                      sm);
        ExpectSupport(KeyOf(Shape(model, pass, causal, kOne), 1), sm);
        ExpectSupport(KeyOf(Shape(model, pass, causal, kTiny), 1), sm);
      }
      // Q, K and V in one row of memory; fp16; other head sizes.
      CallShape fused = Shape(kLarge, pass, Mask::kCausalBottomRight, kMix);
      for (const Role role : {Role::kQ, Role::kK, Role::kV}) {
        fused.strides[Index(role)].row = int64_t{28 + 4 + 4} * 128;
      }
      ExpectSupport(KeyOf(fused, 1), sm);
      for (const int32_t head_dim : {16, 48, 80, 96, 112}) {
        CallShape other = Shape({8, 8, head_dim}, pass, Mask::kFull, kMix);
        other.problem.dtype = DType::kFloat16;
        ExpectSupport(KeyOf(other, 1), sm);
      }
    }
  }
  CallShape deterministic =
      Shape(kLarge, Pass::kBackward, Mask::kCausalBottomRight, kSharded);
  // Why the backend refuses these architectures.
  for (const int32_t sm : {80, 120}) ExpectNone(KeyOf(deterministic, 1), sm);
  deterministic.problem.deterministic = true;
  ExpectSupport(KeyOf(deterministic, 1), 100);
}

void ExpectPlan(const GraphKey& key, int32_t sm) {
  // cuDNN's own, beside what the frontend counts.
  constexpr int64_t kSlack = int64_t{64} << 10;
  const GraphTarget gpu = Gpu(sm);
  const Result<std::unique_ptr<Graph>> built = BuildGraph(key, gpu);
  Check(built.ok(), NameOf(key, sm), built.status());
  if (!built.ok()) return;
  const int64_t bytes = (*built)->workspace_bytes();
  const int64_t expected = GraphWorkspace(key);
  Check(bytes >= expected && bytes <= expected + kSlack,
        "its workspace of " + std::to_string(bytes) + " bytes is about " +
            std::to_string(expected),
        {});
  const Result<std::string> saved = (*built)->Save();
  Check(saved.ok(), "it is saved", saved.status());
  if (!saved.ok()) return;
  const Result<std::unique_ptr<Graph>> loaded = LoadGraph(*saved, gpu);
  Check(loaded.ok() && (*loaded)->workspace_bytes() == bytes,
        "it is loaded from " + std::to_string(saved->size()) + " bytes",
        loaded.status());
  const Status cut =
      LoadGraph(saved->substr(0, saved->size() / 2), gpu).status();
  Check(cut.code() == StatusCode::kInternal, "half of it is not loaded", cut);
}

// Builds a graph of sm90 whose workspace is at least so large.
void ExpectLarge(const GraphKey& key, int64_t bytes, const char* why) {
  const Result<std::unique_ptr<Graph>> graph = BuildGraph(key, Gpu(90));
  Check(graph.ok() && (*graph)->workspace_bytes() >= bytes,
        why + std::string(": ") + std::to_string(bytes) + " bytes",
        graph.status());
}

void Build() {
  const Mask causal = Mask::kCausalBottomRight;
  CallShape backward = Shape(kLarge, Pass::kBackward, causal, kSharded);
  ExpectPlan(KeyOf(Shape(kLarge, Pass::kForward, causal, kSharded), 1), 90);
  ExpectPlan(KeyOf(backward, 1), 90);
  ExpectPlan(KeyOf(backward, 4), 90);  // a quarter
  ExpectPlan(KeyOf(backward, 1), 100);
  // As many key heads as query heads: no sums for all query heads.
  ExpectPlan(KeyOf(Shape({28, 28, 128}, Pass::kBackward, causal, kSharded), 1),
             90);

  // Why the backend refuses these.
  const Buckets b = BucketsOf(backward.bounds);
  backward.problem.deterministic = true;
  ExpectLarge(KeyOf(backward, 1), 2 * b.segments * 28 * b.max_q * b.max_kv,
              "deterministic: scores in 16 bits");
  ExpectLarge(KeyOf(Shape({28, 28, 72}, Pass::kBackward, causal, kSharded), 1),
              4 * b.segments * 28 * b.max_q * 72,
              "head_dim 72: dQ as if all segments were the longest");
}

int Main(std::string_view mode) {
  const auto version = static_cast<int64_t>(cudnnGetVersion());
  std::printf("cuDNN %" PRId64 ", %s\n", version, FrontendVersion().c_str());
  // What is expected below was read from 9.19. Older ones refuse other graphs,
  // and the backend asks them, so a difference would be no fault.
  if (version < 91900) {
    std::printf("skipped: cuDNN 9.19 is needed\n");
    return kSkipped;
  }
  if (mode == "build") {
    Build();
  } else {
    Support();
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace skrull::exec::cudnn::testing

int main(int argc, char** argv) {
  return skrull::exec::cudnn::testing::Main(argc > 1 ? argv[1] : "support");
}
