// A job file and lengths, as people write them: the text of a JobSpec, a line
// "---", then lengths. Seeds: corpus/job_text.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/tests/fuzz/plan_and_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string separator = "\n---\n";
  const size_t end = input.find(separator);
  if (end == std::string::npos) return 0;
  const auto spec = skrull::ParseJobSpecText(input.substr(0, end));
  if (!spec.ok()) return 0;
  const auto job = skrull::JobFromProto(*spec);
  if (!job.ok()) return 0;
  std::istringstream numbers(input.substr(end + separator.size()));
  std::vector<int64_t> lengths;
  for (int64_t length = 0; numbers >> length;) lengths.push_back(length);
  skrull::fuzz::PlanAndCheck(*job, lengths);
  return 0;
}
