#include "skrull/server/plan_wire.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/util/time_util.h"
#include "skrull/planner/error.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull {

absl::StatusOr<v1::PlanBatchRequest> ParsePlanRequest(grpc::ByteBuffer bytes) {
  v1::PlanBatchRequest message;  // reading consumes the buffer, not the data
  if (!grpc::SerializationTraits<v1::PlanBatchRequest>::Deserialize(&bytes,
                                                                    &message)
           .ok()) {
    return FieldError("request", "is not a skrull.v1.PlanBatchRequest");
  }
  return message;
}

std::string FirstBytes(const grpc::ByteBuffer& bytes, size_t count) {
  std::vector<grpc::Slice> slices;
  std::string first;
  if (!bytes.Dump(&slices).ok()) return first;
  for (const grpc::Slice& slice : slices) {
    const size_t part = std::min(slice.size(), count - first.size());
    first.append(reinterpret_cast<const char*>(slice.begin()), part);
    if (first.size() == count) break;
  }
  return first;
}

grpc::ByteBuffer EncodePlanResponse(const PlanAnswer& answer) {
  using google::protobuf::io::CodedOutputStream;
  const std::string& plan = answer.plan->record().plan;
  uint8_t header[16];
  // Field 1 (plan), length-delimited.
  uint8_t* end = CodedOutputStream::WriteTagToArray((1 << 3) | 2, header);
  end = CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(plan.size()), end);
  v1::PlanBatchResponse rest;
  if (answer.planning_seconds) {
    *rest.mutable_planning_time() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(
            static_cast<int64_t>(*answer.planning_seconds * 1e9));
  }
  rest.set_committed(answer.committed);
  const grpc::Slice slices[] = {
      grpc::Slice(header, static_cast<size_t>(end - header)),
      grpc::Slice(plan.data(), plan.size()),
      grpc::Slice(rest.SerializeAsString())};
  return grpc::ByteBuffer(slices, std::size(slices));
}

}  // namespace skrull
