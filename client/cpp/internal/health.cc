#include "skrull/client/internal/health.h"

#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace skrull::client_internal {
namespace {

// The health protocol's messages on the wire: its request is one string and its
// answer one enum value, each field 1, as the wrapper types have them.
using HealthCheckRequest = google::protobuf::StringValue;
using HealthCheckResponse = google::protobuf::Int32Value;

constexpr int kServing = 1;

}  // namespace

grpc::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service,
                         grpc::ClientContext* context) {
  HealthCheckRequest request;
  request.set_value(service);
  HealthCheckResponse response;
  grpc::Status status;
  grpc::TemplatedGenericStub<HealthCheckRequest, HealthCheckResponse> stub(
      channel);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(
      context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool finished = false;
  queue.Next(&tag, &finished);  // ends with the call, by its deadline
  queue.Shutdown();
  while (queue.Next(&tag, &finished)) {
  }
  if (!status.ok() || response.value() == kServing) return status;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                      "the daemon is there, and takes no calls");
}

}  // namespace skrull::client_internal
