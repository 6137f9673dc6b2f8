// Plans and refusals as JSON, one object a line.
#ifndef SKRULL_CLIENT_CLI_PLAN_JSON_H_
#define SKRULL_CLIENT_CLI_PLAN_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "skrull/v1/plan.pb.h"

namespace skrull::cli {

// Appends `message` as one JSON object: every field, also when it is zero
// (messages that are not set are left out), in the order of the .proto file and
// under its name there; 64-bit integers as
// numbers, enums by name, doubles in the shortest form that reads back the
// same. protobuf's own JSON parser reads it. Map fields are not supported
// (plans have none). O(size).
void AppendJson(const google::protobuf::Message& message, std::string* out);

// {"batch":i,"error":{"code":"...","message":"..."}}
std::string RefusalJson(int64_t batch, const absl::Status& status);

// One line of `skrullctl plan --format json`.
struct PlanLine {
  // False: the batch was refused; `code` and `batch` are set, `plan` is empty.
  bool planned = false;
  v1::Plan plan;
  int64_t batch = 0;
  std::string code;
};

// Errors: INVALID_ARGUMENT saying what is wrong with the line.
absl::StatusOr<PlanLine> ParsePlanLine(const std::string& line);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_PLAN_JSON_H_
