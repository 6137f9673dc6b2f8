#include "skrull/tests/server/security/secure_client.h"

#include <chrono>
#include <utility>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "skrull/server/convert.h"

namespace skrull::testing {

SecureClient::SecureClient(const std::string& address, Identity identity)
    : identity_(std::move(identity)) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!identity_.server_name.empty()) {
    arguments.SetSslTargetNameOverride(identity_.server_name);
  }
  channel_ = grpc::CreateCustomChannel(
      address,
      identity_.ca.empty()
          ? grpc::InsecureChannelCredentials()
          : grpc::SslCredentials({.pem_root_certs = identity_.ca,
                                  .pem_private_key = identity_.key,
                                  .pem_cert_chain = identity_.cert}),
      arguments);
  stub_ = v1::PlannerService::NewStub(channel_);
}

void SecureClient::Prepare(grpc::ClientContext* context) const {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::minutes(2));
  if (!identity_.token.empty()) {
    context->AddMetadata("authorization", "Bearer " + identity_.token);
  }
  for (const std::string& value : identity_.authorization) {
    context->AddMetadata("authorization", value);
  }
}

grpc::Status SecureClient::Call(const std::string& method,
                                const google::protobuf::Message& request,
                                google::protobuf::Message* response) {
  const std::string path =
      method.starts_with('/') ? method : "/skrull.v1.PlannerService/" + method;
  const grpc::internal::RpcMethod rpc(path.c_str(),
                                      grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Slice slice(request.SerializeAsString());
  grpc::ClientContext context;
  Prepare(&context);
  grpc::ByteBuffer answer;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          channel_.get(), rpc, &context, grpc::ByteBuffer(&slice, 1), &answer);
  if (status.ok() && response != nullptr) {
    grpc::Slice bytes;
    answer.DumpToSingleSlice(&bytes);
    response->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
  }
  return status;
}

grpc::Status SecureClient::StreamOne(const v1::PlanBatchRequest& batch) {
  grpc::ClientContext context;
  Prepare(&context);
  const auto stream = stub_->StreamPlans(&context);
  v1::StreamPlansRequest request;
  *request.mutable_batch() = batch;
  v1::StreamPlansResponse response;
  stream->Write(request);
  stream->WritesDone();
  const bool answered = stream->Read(&response);
  const grpc::Status ended = stream->Finish();
  if (!answered || !response.has_status()) return ended;
  return grpc::Status(static_cast<grpc::StatusCode>(response.status().code()),
                      response.status().message(),
                      response.status().SerializeAsString());
}

std::string AuthLine(const std::string& subject, const std::string& role,
                     const std::string& token) {
  return subject + " " + role + " sha256:" + Sha256Hex(token) + "\n";
}

}  // namespace skrull::testing
