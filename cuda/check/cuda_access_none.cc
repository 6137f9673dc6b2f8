#include <cstring>

#include "skrull/cuda/check/cuda_access.h"

namespace skrull::check {

exec::Status CopyToHost(void* dst, const void* src, int64_t bytes,
                        exec::MemoryKind memory) {
  if (memory != exec::MemoryKind::kHost) {
    return {exec::StatusCode::kUnsupported,
            "this program was built without the CUDA Toolkit"};
  }
  std::memcpy(dst, src, static_cast<size_t>(bytes));
  return {};
}

nlohmann::ordered_json DescribeGpu(int32_t) {
  return {{"gpu", "none: built without the CUDA Toolkit"}};
}

}  // namespace skrull::check
