#include "skrull/cuda/attention/cudnn/options.h"

#include <charconv>
#include <system_error>

namespace skrull::exec::cudnn {

Result<CudnnOptions> OptionsFrom(const Environment& environment) {
  const auto read = [&](const char* name) -> std::string {
    const char* const value = environment(name);
    return value == nullptr ? "" : value;
  };
  CudnnOptions options;
  options.plan_directory = read("SKRULL_CUDNN_PLAN_DIR");
  const std::string bytes = read("SKRULL_CUDNN_WORKSPACE_BYTES");
  if (bytes.empty()) return options;
  const char* const end = bytes.data() + bytes.size();
  const auto [parsed, error] =
      std::from_chars(bytes.data(), end, options.workspace_bytes);
  if (error != std::errc() || parsed != end || options.workspace_bytes < 0) {
    return InvalidArgument("SKRULL_CUDNN_WORKSPACE_BYTES is '" + bytes +
                           "'; it must be a number of bytes");
  }
  return options;
}

}  // namespace skrull::exec::cudnn
