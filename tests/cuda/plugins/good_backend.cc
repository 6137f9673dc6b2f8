// An attention backend in a library of its own, which computes nothing.
#include <memory>

#include "skrull/cuda/backend_registry.h"

namespace skrull::exec {
namespace {

class PluginAttention final : public AttentionBackend {
 public:
  std::string_view name() const override { return "good"; }
  MemoryKind memory() const override { return MemoryKind::kHost; }
  Status Supports(const AttentionProblem&, Pass) const override { return No(); }
  LseOrder lse_order() const override { return LseOrder::kRowMajor; }
  int32_t kv_tail_rows() const override { return 7; }
  Result<int64_t> Prepare(const AttentionProblem&, const SegmentBounds&,
                          Pass) override {
    return No();
  }
  Status Forward(const AttentionForward&, Workspace, Stream) override {
    return No();
  }
  Status Backward(const AttentionBackward&, Workspace, Stream) override {
    return No();
  }

 private:
  static Status No() { return {StatusCode::kUnsupported, "it is a plug-in"}; }
};

BackendResult Create() {
  return std::unique_ptr<AttentionBackend>(std::make_unique<PluginAttention>());
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_BACKEND(skrull::exec::Create);
