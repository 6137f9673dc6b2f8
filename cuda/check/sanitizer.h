// The check itself under compute-sanitizer.
#ifndef SKRULL_CUDA_CHECK_SANITIZER_H_
#define SKRULL_CUDA_CHECK_SANITIZER_H_

#include <string>
#include <vector>

#include "skrull/cuda/check/report.h"

namespace skrull::check {

struct SanitizerOptions {
  // A path, or a name that is looked for in PATH.
  std::string sanitizer = "compute-sanitizer";
  // What it runs: a program and its arguments.
  std::vector<std::string> program = {};
  // Of all four tools together. What one leaves goes to the next.
  double seconds = 0;
};

// Adds a case for each of memcheck, racecheck, initcheck and synccheck to the
// section. Errors that a tool finds, and a program that fails, are failures
// with the end of the output. Skipped, saying why: a sanitizer that is not
// there or does not know the device, and a tool that does not end in time.
// Needs timeout(1) of coreutils.
void RunSanitizers(const SanitizerOptions& options, SectionWriter* section);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_SANITIZER_H_
