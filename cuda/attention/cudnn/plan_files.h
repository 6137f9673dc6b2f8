// Plans on disk, so that they are built once a machine and not once a process.
#ifndef SKRULL_CUDA_ATTENTION_CUDNN_PLAN_FILES_H_
#define SKRULL_CUDA_ATTENTION_CUDNN_PLAN_FILES_H_

#include <optional>
#include <string>

#include "skrull/cuda/status.h"

namespace skrull::exec::cudnn {

// A file a plan, named by a hash of the plan's name, which is all that it was
// made for. A file holds its name, length and checksum: one that is cut,
// damaged, of another name with the same hash, or of another version reads as
// none. Written aside and renamed, so that a reader sees a whole file or none,
// also of several processes.
//
// Thread-safe. cuDNN trusts the bytes, so nobody else may write the directory.
class PlanFiles {
 public:
  // `directory` is made by the first Write.
  explicit PlanFiles(std::string directory)
      : directory_(std::move(directory)) {}

  std::optional<std::string> Read(const std::string& name) const;
  // Replaces the plan of that name. Errors: INTERNAL naming the file.
  Status Write(const std::string& name, const std::string& plan) const;

  std::string PathOf(const std::string& name) const;

 private:
  const std::string directory_;
};

}  // namespace skrull::exec::cudnn

#endif  // SKRULL_CUDA_ATTENTION_CUDNN_PLAN_FILES_H_
