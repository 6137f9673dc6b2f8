#include "skrull/cuda/check/rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "skrull/cuda/check/cuda_access.h"
#include "skrull/cuda/cpu/host_types.h"

namespace skrull::check {
namespace {

using exec::DType;
using exec::Result;
using exec::Tensor;

std::vector<char> ToBytes(DType dtype, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() *
                          static_cast<size_t>(exec::SizeOf(dtype)));
  exec::WithHostType(dtype, [&]<class T>(T) {
    char* to = bytes.data();
    for (const double value : values) {
      const T rounded = exec::ConvertHost<T>(value);
      std::memcpy(to, &rounded, sizeof(T));
      to += sizeof(T);
    }
  });
  return bytes;
}

}  // namespace

Rows RandomRows(uint64_t seed, DType dtype, int64_t count, int64_t width) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Rows rows = {
      .width = width,
      .values = std::vector<double>(static_cast<size_t>(count * width))};
  exec::WithHostType(dtype, [&]<class T>(T) {
    for (double& value : rows.values) {
      value = exec::ConvertHost<double>(exec::ConvertHost<T>(normal(random)));
    }
  });
  return rows;
}

Rows PickRows(const Rows& rows, const std::vector<int64_t>& indices) {
  Rows picked = {.width = rows.width, .values = {}};
  for (const int64_t index : indices) {
    const auto begin =
        rows.values.begin() + static_cast<ptrdiff_t>(index * rows.width);
    picked.values.insert(picked.values.end(), begin,
                         begin + static_cast<ptrdiff_t>(rows.width));
  }
  return picked;
}

double RelativeError(const Rows& a, const Rows& b) {
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double difference = a.values[i] - b.values[i];
    off += difference * difference;
    size += b.values[i] * b.values[i];
  }
  if (!std::isfinite(off)) return std::numeric_limits<double>::infinity();
  return off > 0 ? std::sqrt(off / size) : 0;
}

Result<Tensor> DeviceRows::Upload(const Rows& rows, DType dtype, int32_t heads,
                                  int32_t dim, const Behind& behind) {
  // Far from the normal numbers of RandomRows.
  constexpr double kLarge = 64;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values = rows.values;
  values.resize(values.size() + static_cast<size_t>(behind.finite * rows.width),
                kLarge);
  values.resize(values.size() + static_cast<size_t>(behind.nan * rows.width),
                kNan);
  const std::vector<char> bytes = ToBytes(dtype, values);
  Result<exec::Buffer> buffer =
      device_->Allocate(static_cast<int64_t>(bytes.size()));
  SKRULL_EXEC_RETURN_IF_ERROR(buffer.status());
  SKRULL_EXEC_RETURN_IF_ERROR(device_->Upload(
      buffer->data(), bytes.data(), static_cast<int64_t>(bytes.size())));
  buffers_.push_back(*std::move(buffer));
  return exec::DenseTensor(buffers_.back().data(), dtype, rows.count(), heads,
                           dim);
}

Result<Tensor> DeviceRows::Poisoned(DType dtype, int64_t count, int32_t heads,
                                    int32_t dim) {
  const int64_t width = int64_t{heads} * dim;
  return Upload(
      {.width = width,
       .values = std::vector<double>(static_cast<size_t>(count * width),
                                     std::numeric_limits<double>::quiet_NaN())},
      dtype, heads, dim, {.finite = 0, .nan = kGuardRows});
}

Result<Rows> DeviceRows::Download(const Tensor& tensor) const {
  const int64_t elements = tensor.rows * tensor.heads * tensor.dim;
  std::vector<char> bytes(
      static_cast<size_t>(elements * exec::SizeOf(tensor.dtype)));
  SKRULL_EXEC_RETURN_IF_ERROR(device_->AsCurrent([&] {
    return CopyToHost(bytes.data(), tensor.data,
                      static_cast<int64_t>(bytes.size()), device_->memory());
  }));
  Rows rows = {.width = int64_t{tensor.heads} * tensor.dim, .values = {}};
  exec::WithHostType(tensor.dtype, [&]<class T>(T) {
    for (int64_t r = 0; r < tensor.rows; ++r) {
      for (int32_t h = 0; h < tensor.heads; ++h) {
        for (int32_t i = 0; i < tensor.dim; ++i) {
          const int64_t at = r * tensor.row_stride + h * tensor.head_stride + i;
          T value;
          std::memcpy(&value, bytes.data() + at * int64_t{sizeof(T)},
                      sizeof(T));
          rows.values.push_back(exec::ConvertHost<double>(value));
        }
      }
    }
  });
  return rows;
}

}  // namespace skrull::check
