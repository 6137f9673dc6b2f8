#include "skrull/cli/job_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/cli/io.h"
#include "skrull/server/convert.h"

namespace skrull::cli {

absl::StatusOr<JobFile> ReadJobFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadInput(path);
  if (!text.ok()) return text.status();
  const absl::StatusOr<v1::JobSpec> spec = ParseJobSpecText(*text);
  absl::StatusOr<Job> job = spec.ok() ? JobFromProto(*spec) : spec.status();
  if (!job.ok()) {
    return absl::Status(
        job.status().code(),
        absl::StrCat(path, ": ", std::string(job.status().message())));
  }
  return JobFile{*std::move(text), *std::move(job)};
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (Policy policy : AllPolicies()) names.push_back(PolicyName(policy));
  return names;
}

}  // namespace skrull::cli
