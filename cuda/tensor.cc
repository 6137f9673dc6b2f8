#include "skrull/cuda/tensor.h"

#include <string_view>

namespace skrull::exec {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
  }
  return "unknown";
}

}  // namespace skrull::exec
