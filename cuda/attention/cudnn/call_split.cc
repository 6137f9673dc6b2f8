#include "skrull/cuda/attention/cudnn/call_split.h"

#include <algorithm>
#include <string>

namespace skrull::exec::cudnn {
namespace {

constexpr std::array<Role, 3> kGradients = {Role::kDQ, Role::kDK, Role::kDV};

int32_t HeadsOf(const AttentionProblem& problem, Role role) {
  return HasKeyRows(role) ? problem.kv_heads : problem.q_heads;
}

int32_t DimOf(Role role, int32_t head_dim) {
  return role == Role::kLse ? 1 : head_dim;
}

Strides Dense(int32_t heads, int32_t dim) {
  return {int64_t{heads} * dim, dim};
}

int64_t RowsOf(const Buckets& buckets, Role role) {
  return HasKeyRows(role) ? buckets.total_kv : buckets.total_q;
}

bool IsStaged(const CallShape& shape, int32_t groups) {
  if (shape.pass == Pass::kForward) return false;
  if (groups > 1) return true;
  for (const Role role : kGradients) {
    if (shape.strides[Index(role)] !=
        Dense(HeadsOf(shape.problem, role), shape.problem.head_dim)) {
      return true;
    }
  }
  return false;
}

int64_t Align(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The memory of a split whose other fields are known.
void Place(CallSplit* split) {
  const GraphKey& key = split->key;
  split->graph_at = SegmentArrayBytes(key);
  split->bytes = split->graph_at + Align(split->graph->workspace_bytes());
  if (!split->staged) return;
  for (const Role role : kGradients) {
    split->staged_at[Index(role)] = split->bytes;
    split->bytes += Align(RowsOf(key.buckets, role) * key.heads(role) *
                          key.head_dim * SizeOf(key.dtype));
  }
}

// Heads [group * heads, group * heads + heads) of a tensor.
Tensor HeadsOfGroup(const Tensor& tensor, int32_t group, int32_t heads) {
  Tensor part = tensor;
  part.data = static_cast<char*>(tensor.data) + int64_t{group} * heads *
                                                    NormalStrides(tensor).head *
                                                    SizeOf(tensor.dtype);
  part.heads = heads;
  return part;
}

}  // namespace

CallTensors TensorsOf(const AttentionForward& call) {
  CallTensors tensors;
  tensors[Index(Role::kQ)] = call.q;
  tensors[Index(Role::kK)] = call.k;
  tensors[Index(Role::kV)] = call.v;
  tensors[Index(Role::kO)] = call.o;
  tensors[Index(Role::kLse)] = call.lse;
  return tensors;
}

CallTensors TensorsOf(const AttentionBackward& call) {
  return {call.q,   call.k,  call.v,  call.o, call.d_o,
          call.lse, call.dq, call.dk, call.dv};
}

CallShape DenseShape(const AttentionProblem& problem,
                     const SegmentBounds& bounds, Pass pass) {
  CallShape shape{problem, pass, bounds, {}};
  for (const Role role : kAllRoles) {
    if (!IsPartOf(role, pass)) continue;
    shape.strides[Index(role)] =
        Dense(HeadsOf(problem, role), DimOf(role, problem.head_dim));
  }
  return shape;
}

CallShape ShapeOf(const AttentionProblem& problem, const SegmentBounds& bounds,
                  Pass pass, const CallTensors& tensors) {
  CallShape shape{problem, pass, bounds, {}};
  for (const Role role : kAllRoles) {
    if (!IsPartOf(role, pass)) continue;
    shape.strides[Index(role)] = NormalStrides(tensors[Index(role)]);
  }
  return shape;
}

GraphKey KeyOf(const CallShape& shape, int32_t groups) {
  const AttentionProblem& p = shape.problem;
  GraphKey key{
      .pass = shape.pass,
      .dtype = p.dtype,
      .mask = shape.bounds.mask,
      .deterministic = p.deterministic && shape.pass == Pass::kBackward,
      .q_heads = p.q_heads / groups,
      .kv_heads = p.kv_heads / groups,
      .head_dim = p.head_dim,
      .scale = p.scale,
      .buckets = BucketsOf(shape.bounds),
      .strides = shape.strides};
  if (IsStaged(shape, groups)) {
    for (const Role role : kGradients) {
      key.strides[Index(role)] = Dense(key.heads(role), p.head_dim);
    }
  }
  return key;
}

Result<Choice> ChooseSplit(const CallShape& shape, const DeviceInfo& device,
                           int64_t budget, PlanCache* cache) {
  int64_t least = 0;  // of the splits tried
  for (int32_t groups = 1; groups <= shape.problem.kv_heads; ++groups) {
    if (shape.problem.kv_heads % groups != 0) continue;
    CallSplit split;
    split.key = KeyOf(shape, groups);
    const Result<Graph*> graph = cache->Get(device, split.key);
    if (graph.status().code() == StatusCode::kPlanBuildFailed) {
      return Choice(Refusal{Reason::kNoKernel, graph.status().message()});
    }
    SKRULL_EXEC_RETURN_IF_ERROR(graph.status());
    split.graph = *graph;
    split.groups = groups;
    split.staged = IsStaged(shape, groups);
    Place(&split);
    if (split.bytes <= budget) return Choice(split);
    least = least == 0 ? split.bytes : std::min(least, split.bytes);
  }
  return Choice(Refusal{
      Reason::kWorkspace,
      "a call needs a workspace of " + std::to_string(least) +
          " bytes, of which " + std::to_string(budget) + " are allowed" +
          (IsStaged(shape, 1) ? "; dq, dk or dv is not dense, which takes more"
                              : "")});
}

Status RunSplit(const CallSplit& split, const Segments& segments,
                const CallTensors& tensors, void* workspace, Stream stream,
                CudnnApi* api) {
  const GraphKey& key = split.key;
  char* const memory = static_cast<char*>(workspace);
  GraphArguments arguments;
  arguments.arrays = PlaceSegmentArrays(key, segments, memory);
  arguments.workspace = memory + split.graph_at;
  SKRULL_EXEC_RETURN_IF_ERROR(
      api->WriteSegmentArrays(arguments.arrays, stream));
  for (int32_t group = 0; group < split.groups; ++group) {
    for (const Role role : kAllRoles) {
      if (!IsPartOf(role, key.pass)) continue;
      arguments.tensors[Index(role)] =
          HeadsOfGroup(tensors[Index(role)], group, key.heads(role)).data;
    }
    if (split.staged) {
      for (const Role role : kGradients) {
        arguments.tensors[Index(role)] = memory + split.staged_at[Index(role)];
      }
    }
    SKRULL_EXEC_RETURN_IF_ERROR(split.graph->Run(arguments, stream));
    if (!split.staged) continue;
    for (const Role role : kGradients) {
      const Tensor dst =
          HeadsOfGroup(tensors[Index(role)], group, key.heads(role));
      SKRULL_EXEC_RETURN_IF_ERROR(
          api->CopyRows(dst,
                        DenseTensor(arguments.tensors[Index(role)], dst.dtype,
                                    dst.rows, dst.heads, dst.dim),
                        stream));
    }
  }
  return {};
}

}  // namespace skrull::exec::cudnn
