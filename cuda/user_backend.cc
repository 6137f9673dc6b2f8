#include "skrull/cuda/user_backend.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>

#include "skrull/cuda/attention_check.h"
#include "skrull/cuda/host_queue.h"

namespace skrull::exec {
namespace {

skrull_attention_tensor ToTable(const Tensor& t) {
  return {.data = t.data,
          .rows = t.rows,
          .row_stride = t.row_stride,
          .head_stride = t.head_stride,
          .dtype = static_cast<int32_t>(t.dtype),
          .heads = t.heads,
          .dim = t.dim,
          .reserved = 0};
}

skrull_attention_problem ToTable(const AttentionProblem& p) {
  return {.struct_bytes = sizeof(skrull_attention_problem),
          .scale = p.scale,
          .dtype = static_cast<int32_t>(p.dtype),
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .head_dim = p.head_dim,
          .deterministic = p.deterministic ? 1 : 0,
          .reserved = 0};
}

skrull_attention_bounds ToTable(const SegmentBounds& b) {
  return {.struct_bytes = sizeof(skrull_attention_bounds),
          .total_q = b.total_q,
          .total_kv = b.total_kv,
          .segments = b.count,
          .max_q = b.max_q,
          .max_kv = b.max_kv,
          .mask = static_cast<int32_t>(b.mask)};
}

skrull_attention_call ToTable(const AttentionProblem& problem,
                              const Segments& segments, Workspace workspace) {
  skrull_attention_call call{};
  call.struct_bytes = sizeof(call);
  call.problem = ToTable(problem);
  call.bounds = ToTable(segments.bounds);
  call.cu_q = segments.cu_q;
  call.cu_kv = segments.cu_kv;
  call.device_cu_q = segments.device_cu_q;
  call.device_cu_kv = segments.device_cu_kv;
  call.workspace = workspace.data;
  call.workspace_bytes = workspace.bytes;
  return call;
}

class UserAttention final : public AttentionBackend {
 public:
  explicit UserAttention(const skrull_attention_table& table)
      : table_(table), name_(table.name == nullptr ? "user" : table.name) {}

  std::string_view name() const override { return name_; }
  MemoryKind memory() const override {
    return static_cast<MemoryKind>(table_.memory);
  }
  LseOrder lse_order() const override {
    return static_cast<LseOrder>(table_.lse_order);
  }
  int32_t kv_tail_rows() const override { return table_.kv_tail_rows; }

  Status Supports(const AttentionProblem& problem, Pass pass) const override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckProblem(problem));
    if (table_.supports == nullptr) return {};
    const skrull_attention_problem p = ToTable(problem);
    return Ask([&](char* message, int64_t bytes) {
      return table_.supports(table_.context, &p, static_cast<int32_t>(pass),
                             message, bytes);
    });
  }

  Result<int64_t> Prepare(const AttentionProblem& problem,
                          const SegmentBounds& bounds, Pass pass) override {
    int64_t bytes = 0;
    if (table_.workspace == nullptr) return bytes;
    const skrull_attention_problem p = ToTable(problem);
    const skrull_attention_bounds b = ToTable(bounds);
    SKRULL_EXEC_RETURN_IF_ERROR(Ask([&](char* message, int64_t size) {
      return table_.workspace(table_.context, &p, &b,
                              static_cast<int32_t>(pass), &bytes, message,
                              size);
    }));
    if (bytes < 0) {
      return Status(
          StatusCode::kInternal,
          name_ + ": a workspace of " + std::to_string(bytes) + " bytes");
    }
    return bytes;
  }

  Status Forward(const AttentionForward& call, Workspace workspace,
                 Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckForward(call));
    skrull_attention_call c = ToTable(call.problem, call.segments, workspace);
    c.q = ToTable(call.q);
    c.k = ToTable(call.k);
    c.v = ToTable(call.v);
    c.o = ToTable(call.o);
    c.lse = ToTable(call.lse);
    return Run(table_.forward, c, stream);
  }

  Status Backward(const AttentionBackward& call, Workspace workspace,
                  Stream stream) override {
    SKRULL_EXEC_RETURN_IF_ERROR(CheckBackward(call));
    skrull_attention_call c = ToTable(call.problem, call.segments, workspace);
    c.q = ToTable(call.q);
    c.k = ToTable(call.k);
    c.v = ToTable(call.v);
    c.o = ToTable(call.o);
    c.lse = ToTable(call.lse);
    c.d_o = ToTable(call.d_o);
    c.dq = ToTable(call.dq);
    c.dk = ToTable(call.dk);
    c.dv = ToTable(call.dv);
    return Run(table_.backward, c, stream);
  }

 private:
  // Calls ask(message, bytes) and makes a Status of what it returns.
  template <class Function>
  Status Ask(const Function& ask) const {
    std::array<char, 256> message{};
    const int32_t number =
        ask(message.data(), static_cast<int64_t>(message.size()));
    message.back() = '\0';
    if (number == 0) return {};
    std::string text = name_ + ": " + message.data();
    auto code = static_cast<StatusCode>(number);
    if (StatusCodeName(code) == "UNKNOWN") {
      text += " (code " + std::to_string(number) + ")";
      code = StatusCode::kInternal;
    }
    return {code, std::move(text)};
  }

  Status Run(int32_t (*function)(void*, const skrull_attention_call*, char*,
                                 int64_t),
             skrull_attention_call call, Stream stream) const {
    const auto run = [this, function, call] {
      return Ask([&](char* message, int64_t bytes) {
        return function(table_.context, &call, message, bytes);
      });
    };
    if (memory() == MemoryKind::kHost) {
      return EnqueueOnHost(stream, [run](const Status& device) {
        return device.ok() ? run() : Status();
      });
    }
    call.stream = stream.handle;
    return Ask([&](char* message, int64_t bytes) {
      return function(table_.context, &call, message, bytes);
    });
  }

  const skrull_attention_table table_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<AttentionBackend>> CreateUserAttention(
    const skrull_attention_table& table) {
  if (table.struct_bytes != sizeof(skrull_attention_table)) {
    return InvalidArgument("attention table: struct_bytes is " +
                           std::to_string(table.struct_bytes) + ", not " +
                           std::to_string(sizeof(skrull_attention_table)));
  }
  for (const auto& [name, value, limit] :
       {std::tuple("memory", table.memory, 1),
        std::tuple("lse_order", table.lse_order, 2),
        std::tuple("kv_tail_rows", table.kv_tail_rows, 4096)}) {
    if (value < 0 || value > limit) {
      return InvalidArgument("attention table: " + std::string(name) + " is " +
                             std::to_string(value) + ", not in 0 .. " +
                             std::to_string(limit));
    }
  }
  if (table.forward == nullptr) {
    return InvalidArgument("attention table: forward is null");
  }
  if (table.backward == nullptr) {
    return InvalidArgument("attention table: backward is null");
  }
  return std::unique_ptr<AttentionBackend>(new UserAttention(table));
}

}  // namespace skrull::exec
