// Job specs as files, in the text form of skrull.v1.JobSpec.
#ifndef SKRULL_CLIENT_CLI_JOB_FILE_H_
#define SKRULL_CLIENT_CLI_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "skrull/planner/job.h"

namespace skrull::cli {

// A spec and the job it describes.
struct JobFile {
  std::string text;
  Job job;
};

// Reads and validates. A spec that describes no job is an input that cannot be
// read, whoever plans. Errors: those of ReadInput; INVALID_ARGUMENT with the
// path, and line and column or the field.
absl::StatusOr<JobFile> ReadJobFile(const std::string& path);

// Names of all policies, in enum order: what a --policy option takes.
std::vector<std::string> PolicyNames();

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_JOB_FILE_H_
