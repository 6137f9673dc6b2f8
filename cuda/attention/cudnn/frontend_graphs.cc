#include "skrull/cuda/attention/cudnn/frontend_graphs.h"

#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "cudnn_frontend.h"

namespace skrull::exec::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<Attributes>;
using Uid = int64_t;

// Names of a graph's tensors, the same in each so that loaded ones have them.
constexpr Uid kFirstTensor = 1;
constexpr Uid kFirstOffsets = kFirstTensor + kRoles;
constexpr Uid kQLengths = kFirstOffsets + kRoles;
constexpr Uid kKvLengths = kQLengths + 1;

Uid UidOf(Role role) { return kFirstTensor + static_cast<Uid>(role); }

// Runs what may fail in the library's way, by an error or an exception. Errors:
// `code` with the library's text; OUT_OF_MEMORY.
template <class Work>
Status Guarded(StatusCode code, const Work& work) {
  try {
    const fe::error_t error = work();
    if (error.is_good()) return {};
    return {code, "cuDNN: " + error.err_msg};
  } catch (const std::bad_alloc&) {
    return {StatusCode::kOutOfMemory, "no host memory for a cuDNN graph"};
  } catch (const std::exception& e) {
    return {code, std::string("cuDNN: ") + e.what()};
  }
}

// Makes the graph's tensors.
class Tensors {
 public:
  Tensors(const GraphKey& key, fe::graph::Graph* graph)
      : key_(key), graph_(graph), lists_(OffsetListsOf(key)) {
    for (int32_t i = 0; i < lists_.count; ++i) {
      offsets_.push_back(List("offsets" + std::to_string(i), kFirstOffsets + i,
                              key.buckets.segments + 1, fe::DataType_t::INT64));
    }
    q_lengths_ = List("q_lengths", kQLengths, key.buckets.segments,
                      fe::DataType_t::INT32);
    kv_lengths_ = List("kv_lengths", kKvLengths, key.buckets.segments,
                       fe::DataType_t::INT32);
  }

  const TensorHandle& q_lengths() const { return q_lengths_; }
  const TensorHandle& kv_lengths() const { return kv_lengths_; }

  TensorHandle Input(Role role) {
    Attributes attributes;
    Describe(role, &attributes);
    return graph_->tensor(attributes);
  }
  void Output(Role role, const TensorHandle& tensor) {
    tensor->set_output(true);
    Describe(role, tensor.get());
  }

 private:
  // [n], of which the library wants four dimensions.
  TensorHandle List(const std::string& name, Uid uid, int64_t n,
                    fe::DataType_t type) {
    return graph_->tensor(Attributes()
                              .set_name(name)
                              .set_uid(uid)
                              .set_dim({n, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(type));
  }

  // [segments, heads, rows, dim]. Offsets say where segments begin, so the
  // stride between them has no meaning, but must be one that cannot overlap.
  void Describe(Role role, Attributes* attributes) const {
    const bool lse = role == Role::kLse;
    const Strides& strides = key_.of(role);
    const int64_t rows =
        HasKeyRows(role) ? key_.buckets.max_kv : key_.buckets.max_q;
    attributes->set_name(RoleName(role))
        .set_uid(UidOf(role))
        .set_dim({key_.buckets.segments, key_.heads(role), rows,
                  lse ? 1 : key_.head_dim})
        .set_stride({rows * strides.row, strides.head, strides.row, 1})
        .set_ragged_offset(
            offsets_[static_cast<size_t>(lists_.of_role[Index(role)])]);
    if (lse) attributes->set_data_type(fe::DataType_t::FLOAT);
    // Segments' numbers begin anywhere, and so do those of a group of heads.
    if (lse) attributes->set_alignment(sizeof(float));
  }

  const GraphKey& key_;
  fe::graph::Graph* const graph_;
  const OffsetLists lists_;
  std::vector<TensorHandle> offsets_;
  TensorHandle q_lengths_, kv_lengths_;
};

// The options that both passes have.
template <class Options>
void SetCommon(const GraphKey& key, const Tensors& tensors, Options* options) {
  options->set_attn_scale(static_cast<float>(key.scale))
      .set_padding_mask(true)
      .set_seq_len_q(tensors.q_lengths())
      .set_seq_len_kv(tensors.kv_lengths());
  if (key.mask == Mask::kCausalBottomRight) {
    options->set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
  }
}

void AddForward(const GraphKey& key, fe::graph::Graph* graph) {
  Tensors tensors(key, graph);
  fe::graph::SDPA_attributes options;
  options.set_name("attention").set_generate_stats(true);
  SetCommon(key, tensors, &options);
  auto [o, lse] = graph->sdpa(tensors.Input(Role::kQ), tensors.Input(Role::kK),
                              tensors.Input(Role::kV), options);
  tensors.Output(Role::kO, o);
  tensors.Output(Role::kLse, lse);
}

void AddBackward(const GraphKey& key, fe::graph::Graph* graph) {
  Tensors tensors(key, graph);
  fe::graph::SDPA_backward_attributes options;
  options.set_name("gradients")
      .set_deterministic_algorithm(key.deterministic)
      // Else the workspace is that of segments which are all the longest.
      .set_max_total_seq_len_q(key.buckets.total_q)
      .set_max_total_seq_len_kv(key.buckets.total_kv);
  SetCommon(key, tensors, &options);
  auto [dq, dk, dv] = graph->sdpa_backward(
      tensors.Input(Role::kQ), tensors.Input(Role::kK), tensors.Input(Role::kV),
      tensors.Input(Role::kO), tensors.Input(Role::kDO),
      tensors.Input(Role::kLse), options);
  tensors.Output(Role::kDQ, dq);
  tensors.Output(Role::kDK, dk);
  tensors.Output(Role::kDV, dv);
}

// The library's graph and where it is made.
struct Draft {
  fe::graph::Graph graph;
  std::optional<HandlePool::Lease> lease;  // none: described

  Status Aim(const GraphTarget& target) {
    if (target.handles != nullptr) {
      Result<HandlePool::Lease> borrowed = target.handles->Borrow();
      SKRULL_EXEC_RETURN_IF_ERROR(borrowed.status());
      lease.emplace(*std::move(borrowed));
      return {};
    }
    return Guarded(StatusCode::kInvalidArgument, [&] {
      auto properties = std::make_shared<fe::DeviceProperties>();
      const std::string& json = target.device_properties;
      fe::error_t error = properties->deserialize({json.begin(), json.end()});
      graph.set_device_properties(properties).set_sm_version(target.sm);
      return error;
    });
  }

  // Up to where cuDNN has said that it has kernels.
  fe::error_t Check(const GraphKey& key) {
    graph
        .set_io_data_type(key.dtype == DType::kFloat16
                              ? fe::DataType_t::HALF
                              : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (key.pass == Pass::kForward) {
      AddForward(key, &graph);
    } else {
      AddBackward(key, &graph);
    }
    fe::error_t error = graph.validate();
    if (error.is_bad()) return error;
    error = lease.has_value() ? graph.build_operation_graph(lease->handle())
                              : graph.build_operation_graph();
    if (error.is_bad()) return error;
    error = graph.create_execution_plans({fe::HeurMode_t::A});
    return error.is_bad() ? error : graph.check_support();
  }
};

class FrontendGraph final : public Graph {
 public:
  FrontendGraph(std::unique_ptr<Draft> draft, HandlePool* handles,
                int64_t workspace_bytes)
      : draft_(std::move(draft)),
        handles_(handles),
        workspace_bytes_(workspace_bytes) {
    draft_->lease.reset();
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  Result<std::string> Save() const override {
    std::vector<uint8_t> bytes;
    SKRULL_EXEC_RETURN_IF_ERROR(Guarded(StatusCode::kInternal, [&] {
      return draft_->graph.serialize(bytes, /*serialize_structure=*/false);
    }));
    return std::string(bytes.begin(), bytes.end());
  }

  Status Run(const GraphArguments& arguments, Stream stream) override {
    if (handles_ == nullptr) {
      return {StatusCode::kDeviceError, "a graph of a device described"};
    }
    // cuDNN promises that threads may share it, and is silent on sharing a
    // plan.
    const std::lock_guard lock(running_);
    const Result<HandlePool::Lease> lease = handles_->Borrow();
    SKRULL_EXEC_RETURN_IF_ERROR(lease.status());
    SKRULL_EXEC_RETURN_IF_ERROR(
        FromCudnn("cudnnSetStream",
                  cudnnSetStream(lease->handle(),
                                 static_cast<cudaStream_t>(stream.handle))));
    return Guarded(StatusCode::kDeviceError, [&] {
      std::unordered_map<Uid, void*> pointers;
      for (const Role role : kAllRoles) {
        void* const data = arguments.tensors[Index(role)];
        if (data != nullptr) pointers[UidOf(role)] = data;
      }
      const SegmentArrays& arrays = arguments.arrays;
      for (int32_t i = 0; i < arrays.lists.count; ++i) {
        pointers[kFirstOffsets + i] = arrays.offsets[i];
      }
      pointers[kQLengths] = arrays.q_lengths;
      pointers[kKvLengths] = arrays.kv_lengths;
      return draft_->graph.execute(lease->handle(), pointers,
                                   arguments.workspace);
    });
  }

 private:
  const std::unique_ptr<Draft> draft_;
  HandlePool* const handles_;
  const int64_t workspace_bytes_;
  std::mutex running_;
};

// `draft` has a plan.
Result<std::unique_ptr<Graph>> Finish(std::unique_ptr<Draft> draft,
                                      HandlePool* handles) {
  int64_t bytes = 0;
  SKRULL_EXEC_RETURN_IF_ERROR(Guarded(StatusCode::kInternal, [&] {
    return draft->graph.get_workspace_size(bytes);
  }));
  return std::unique_ptr<Graph>(
      std::make_unique<FrontendGraph>(std::move(draft), handles, bytes));
}

}  // namespace

std::string FrontendVersion() {
  return "cudnn-frontend " + std::to_string(CUDNN_FRONTEND_MAJOR_VERSION) +
         "." + std::to_string(CUDNN_FRONTEND_MINOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_PATCH_VERSION);
}

Status CheckGraph(const GraphKey& key, const GraphTarget& target) {
  Draft draft;
  SKRULL_EXEC_RETURN_IF_ERROR(draft.Aim(target));
  return Guarded(StatusCode::kPlanBuildFailed,
                 [&] { return draft.Check(key); });
}

Result<std::unique_ptr<Graph>> BuildGraph(const GraphKey& key,
                                          const GraphTarget& target) {
  auto draft = std::make_unique<Draft>();
  SKRULL_EXEC_RETURN_IF_ERROR(draft->Aim(target));
  SKRULL_EXEC_RETURN_IF_ERROR(Guarded(StatusCode::kPlanBuildFailed, [&] {
    const fe::error_t error = draft->Check(key);
    return error.is_bad() ? error : draft->graph.build_plans();
  }));
  return Finish(std::move(draft), target.handles);
}

Result<std::unique_ptr<Graph>> LoadGraph(const std::string& bytes,
                                         const GraphTarget& target) {
  auto draft = std::make_unique<Draft>();
  SKRULL_EXEC_RETURN_IF_ERROR(draft->Aim(target));
  SKRULL_EXEC_RETURN_IF_ERROR(Guarded(StatusCode::kInternal, [&] {
    const std::vector<uint8_t> data(bytes.begin(), bytes.end());
    if (!draft->lease.has_value()) return draft->graph.deserialize(data);
    // No warm-up: it captures a stream, in which other threads must not
    // allocate.
    return draft->graph.deserialize(draft->lease->handle(), data,
                                    /*enforce_precompiled=*/false,
                                    /*run_warmup=*/false);
  }));
  return Finish(std::move(draft), target.handles);
}

}  // namespace skrull::exec::cudnn
