// The messages of PlanBatch as bytes: requests that are read when it suits, and
// answers that go out as they are stored.
#ifndef SKRULL_SERVER_PLAN_WIRE_H_
#define SKRULL_SERVER_PLAN_WIRE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "skrull/server/plan_caller.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

// Errors: INVALID_ARGUMENT for bytes that are no request. The buffer's data is
// shared, not copied. O(bytes).
absl::StatusOr<v1::PlanBatchRequest> ParsePlanRequest(grpc::ByteBuffer bytes);

// Up to `count` bytes of it.
std::string FirstBytes(const grpc::ByteBuffer& bytes, size_t count);

// A PlanBatchResponse whose plan is `answer.plan->record().plan`, as it is.
grpc::ByteBuffer EncodePlanResponse(const PlanAnswer& answer);

}  // namespace skrull

#endif  // SKRULL_SERVER_PLAN_WIRE_H_
