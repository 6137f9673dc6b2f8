// The lists of a step, copied to the device in one piece. For the executors,
// and for what measures their calls.
#ifndef SKRULL_CUDA_LIST_UPLOAD_H_
#define SKRULL_CUDA_LIST_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "skrull/cuda/device.h"
#include "skrull/cuda/maps.h"
#include "skrull/cuda/row_runs.h"
#include "skrull/cuda/segments.h"
#include "skrull/cuda/status.h"

namespace skrull::exec::internal {

// Example:
//   ListUpload upload;
//   upload.AddRuns(maps.pack, &views.pack);
//   SKRULL_EXEC_RETURN_IF_ERROR(upload.Send(device, &buffer));
// The lists that were added, and where their views lie, must stay in place
// until Send returns; the lists and the buffer as long as the views are used.
class ListUpload {
 public:
  template <class Run>
  void AddRuns(const std::vector<Run>& runs, RunList<Run>* list) {
    list->host = runs.data();
    list->count = static_cast<int32_t>(runs.size());
    list->rows = 0;
    for (const Run& run : runs) list->rows += run.count;
    const auto bytes = static_cast<int64_t>(runs.size() * sizeof(Run));
    Add(runs.data(), bytes, [list](const void* device) {
      list->device = static_cast<const Run*>(device);
    });
  }

  void AddSegments(const SegmentList& list, Segments* segments);

  // Copies all lists to `buffer`, new memory of the device, and completes the
  // views. Errors: those of the device.
  Status Send(Device* device, Buffer* buffer);

 private:
  using Place = std::function<void(const void* device)>;
  void Add(const void* data, int64_t bytes, Place place);

  struct User {
    size_t offset = 0;
    Place place;
  };
  std::vector<char> bytes_;
  std::vector<User> users_;
};

}  // namespace skrull::exec::internal

#endif  // SKRULL_CUDA_LIST_UPLOAD_H_
