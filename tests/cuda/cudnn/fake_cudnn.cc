#include "skrull/tests/cuda/cudnn/fake_cudnn.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "skrull/cuda/cpu/host_types.h"
#include "skrull/cuda/host_queue.h"
#include "skrull/tests/cuda/cudnn/graph_workspace.h"
#include "skrull/tests/cuda/dense_attention.h"

namespace skrull::exec::cudnn::testing {
namespace {

using exec::testing::Dense;
using exec::testing::DenseAttention;
using exec::testing::DenseResult;

Status Enqueue(Stream stream, const std::function<void()>& work) {
  if (stream.handle != nullptr) {
    return EnqueueOnHost(stream, [work](const Status& device) -> Status {
      if (device.ok()) work();
      return {};
    });
  }
  work();
  return {};
}

double Dot(const Dense& a, int64_t row, int32_t head, const Dense& b,
           int64_t b_row, int32_t b_head) {
  double sum = 0;
  for (int32_t c = 0; c < a.dim; ++c) {
    sum += a.at(row, head, c) * b.at(b_row, b_head, c);
  }
  return sum;
}

class FakeGraph final : public Graph {
 public:
  FakeGraph(const GraphKey& key, FakeCudnn* fake) : key_(key), fake_(fake) {}

  int64_t workspace_bytes() const override { return GraphWorkspace(key_); }
  Result<std::string> Save() const override { return "fake " + ToText(key_); }

  Status Run(const GraphArguments& arguments, Stream stream) override {
    return Enqueue(stream, [this, arguments] {
      std::memset(arguments.workspace, 0xFF,
                  static_cast<size_t>(workspace_bytes()));
      const SegmentArrays& arrays = arguments.arrays;
      CheckArrays(arrays);
      for (int32_t s = 0; s < arrays.segments; ++s) {
        if (arrays.q_lengths[s] > 0) RunSegment(arguments, s);
      }
    });
  }

 private:
  void CheckArrays(const SegmentArrays& arrays) {
    const Buckets& b = key_.buckets;
    int64_t q = 0;
    int64_t kv = 0;
    for (int32_t s = 0; s < arrays.segments; ++s) {
      const int32_t n = arrays.q_lengths[s];
      const int32_t m = arrays.kv_lengths[s];
      if (n > b.max_q || m > b.max_kv) fake_->AddFault("a segment too long");
      if ((n == 0) != (m == 0)) fake_->AddFault("half a filler");
      for (int32_t list = 0; list < arrays.lists.count; ++list) {
        const OffsetList& kind = arrays.lists.lists[list];
        const int64_t first = kind.key_rows ? kv : q;
        const int64_t end = first + (kind.key_rows ? m : n);
        const int64_t* offsets = arrays.offsets[list];
        if (offsets[s] != first * kind.row_stride ||
            offsets[s + 1] != end * kind.row_stride) {
          fake_->AddFault("segments are not packed");
        }
      }
      q += n;
      kv += m;
    }
    if (arrays.segments != b.segments || q > b.total_q || kv > b.total_kv) {
      fake_->AddFault("segments beyond the graph");
    }
  }

  // Visits (row, head, element) and the address of it.
  template <class Visit>
  void Walk(const GraphArguments& arguments, int32_t s, Role role,
            const Visit& visit) const {
    const SegmentArrays& arrays = arguments.arrays;
    const int32_t rows =
        HasKeyRows(role) ? arrays.kv_lengths[s] : arrays.q_lengths[s];
    const int32_t dim = role == Role::kLse ? 1 : key_.head_dim;
    const int64_t first = arrays.offsets[arrays.lists.of_role[Index(role)]][s];
    const DType dtype = role == Role::kLse ? DType::kFloat32 : key_.dtype;
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t h = 0; h < key_.heads(role); ++h) {
        for (int32_t c = 0; c < dim; ++c) {
          const int64_t at =
              first + r * key_.of(role).row + h * key_.of(role).head + c;
          visit(r, h, c,
                static_cast<char*>(arguments.tensors[Index(role)]) +
                    at * SizeOf(dtype),
                dtype);
        }
      }
    }
  }

  Dense Read(const GraphArguments& arguments, int32_t s, Role role) const {
    const SegmentArrays& arrays = arguments.arrays;
    Dense dense(HasKeyRows(role) ? arrays.kv_lengths[s] : arrays.q_lengths[s],
                key_.heads(role), role == Role::kLse ? 1 : key_.head_dim);
    Walk(arguments, s, role,
         [&](int32_t r, int32_t h, int32_t c, char* at, DType dtype) {
           WithHostType(dtype, [&]<class T>(T value) {
             std::memcpy(&value, at, sizeof(value));
             dense.at(r, h, c) = ConvertHost<double>(value);
           });
         });
    return dense;
  }

  void Write(const GraphArguments& arguments, int32_t s, Role role,
             const Dense& dense) const {
    Walk(arguments, s, role,
         [&](int32_t r, int32_t h, int32_t c, char* at, DType dtype) {
           WithHostType(dtype, [&]<class T>(T value) {
             value = ConvertHost<T>(dense.at(r, h, c));
             std::memcpy(at, &value, sizeof(value));
           });
         });
  }

  void RunSegment(const GraphArguments& arguments, int32_t s) {
    const auto read = [&](Role role) { return Read(arguments, s, role); };
    const Dense q = read(Role::kQ);
    const Dense k = read(Role::kK);
    const Dense v = read(Role::kV);
    if (key_.pass == Pass::kForward) {
      const DenseResult result =
          DenseAttention(q, k, v, Dense(q.rows, q.heads, q.dim), key_.scale,
                         key_.mask == Mask::kFull);
      Write(arguments, s, Role::kO, result.o);
      Write(arguments, s, Role::kLse, result.lse);
      return;
    }
    const Dense o = read(Role::kO);
    const Dense d_o = read(Role::kDO);
    const Dense lse = read(Role::kLse);
    Dense dq(q.rows, q.heads, q.dim);
    Dense dk(k.rows, k.heads, k.dim);
    Dense dv(k.rows, k.heads, k.dim);
    const int64_t late = key_.mask == Mask::kFull ? k.rows : k.rows - q.rows;
    for (int32_t h = 0; h < q.heads; ++h) {
      const int32_t g = h / (q.heads / k.heads);
      for (int64_t i = 0; i < q.rows; ++i) {
        const double delta = Dot(d_o, i, h, o, i, h);
        for (int64_t j = 0; j < k.rows && j <= i + late; ++j) {
          const double p =
              std::exp(key_.scale * Dot(q, i, h, k, j, g) - lse.at(i, h, 0));
          const double ds = key_.scale * p * (Dot(d_o, i, h, v, j, g) - delta);
          for (int32_t c = 0; c < q.dim; ++c) {
            dv.at(j, g, c) += p * d_o.at(i, h, c);
            dk.at(j, g, c) += ds * q.at(i, h, c);
            dq.at(i, h, c) += ds * k.at(j, g, c);
          }
        }
      }
    }
    Write(arguments, s, Role::kDQ, dq);
    Write(arguments, s, Role::kDK, dk);
    Write(arguments, s, Role::kDV, dv);
  }

  const GraphKey key_;
  FakeCudnn* const fake_;
};

}  // namespace

Result<std::unique_ptr<Graph>> FakeCudnn::Build(const GraphKey& key) {
  if (on_build) SKRULL_EXEC_RETURN_IF_ERROR(on_build(key));
  const std::lock_guard lock(mutex_);
  built_.push_back(key);
  saved_["fake " + ToText(key)] = key;
  return std::unique_ptr<Graph>(std::make_unique<FakeGraph>(key, this));
}

Result<std::unique_ptr<Graph>> FakeCudnn::Load(const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = saved_.find(bytes);
  if (found == saved_.end()) {
    return Status(StatusCode::kInternal, "these bytes are no plan");
  }
  ++loads_;
  return std::unique_ptr<Graph>(
      std::make_unique<FakeGraph>(found->second, this));
}

Status FakeCudnn::WriteSegmentArrays(const SegmentArrays& arrays,
                                     Stream stream) {
  return LaunchSegmentArrays(arrays, stream);
}

Status FakeCudnn::CopyRows(const Tensor& dst, const Tensor& src,
                           Stream stream) {
  return Enqueue(stream, [dst, src] {
    const auto bytes = static_cast<size_t>(dst.dim * SizeOf(dst.dtype));
    const auto at = [](const Tensor& t, int64_t r, int64_t h) {
      return static_cast<char*>(t.data) +
             (r * t.row_stride + h * t.head_stride) * SizeOf(t.dtype);
    };
    for (int64_t r = 0; r < dst.rows; ++r) {
      for (int32_t h = 0; h < dst.heads; ++h) {
        std::memcpy(at(dst, r, h), at(src, r, h), bytes);
      }
    }
  });
}

void FakeCudnn::AddFault(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(fault);
}

std::vector<std::string> FakeCudnn::faults() {
  const std::lock_guard lock(mutex_);
  return faults_;
}

std::vector<GraphKey> FakeCudnn::built() {
  const std::lock_guard lock(mutex_);
  return built_;
}

}  // namespace skrull::exec::cudnn::testing
