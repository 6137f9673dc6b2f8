// Rows of numbers on the host and on a device.
#ifndef SKRULL_CUDA_CHECK_ROWS_H_
#define SKRULL_CUDA_CHECK_ROWS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "skrull/cuda/device.h"
#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"

namespace skrull::check {

// rows x width numbers, row after row.
struct Rows {
  int64_t width = 0;
  std::vector<double> values;

  int64_t count() const {
    return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width;
  }
};

// Normal numbers, rounded to `dtype`: what a device then computes with is
// exactly what is here. The same for the same seed.
Rows RandomRows(uint64_t seed, exec::DType dtype, int64_t count, int64_t width);

// The rows of these indices, in their order.
Rows PickRows(const Rows& rows, const std::vector<int64_t>& indices);

// ||a - b|| / ||b||, over all numbers; infinite if any of `a` is no number.
// REQUIRES: as many numbers.
double RelativeError(const Rows& a, const Rows& b);

// Rows behind a tensor's last: `finite` ones, whose numbers must not matter and
// are so large that they do if they are used, and then `nan` ones, which must
// not even be read.
struct Behind {
  int64_t finite = 0;
  int64_t nan = 0;
};

// As many as a tile of any backend has.
inline constexpr int64_t kGuardRows = 128;

// Tensors of one device, freed together.
class DeviceRows {
 public:
  explicit DeviceRows(exec::Device* device) : device_(device) {}

  // Heads x dim numbers a row, and what lies behind them.
  exec::Result<exec::Tensor> Upload(const Rows& rows, exec::DType dtype,
                                    int32_t heads, int32_t dim,
                                    const Behind& behind);
  // The same, filled with NaN and with NaN behind: what nobody writes shows.
  exec::Result<exec::Tensor> Poisoned(exec::DType dtype, int64_t count,
                                      int32_t heads, int32_t dim);
  // REQUIRES: a tensor of either, possibly with the strides of [heads, rows].
  exec::Result<Rows> Download(const exec::Tensor& tensor) const;

 private:
  exec::Device* const device_;
  std::deque<exec::Buffer> buffers_;
};

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_ROWS_H_
