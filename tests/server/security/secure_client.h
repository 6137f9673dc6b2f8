// A client of one daemon that shows who it is, and whom it trusts.
#ifndef SKRULL_TESTS_SERVER_SECURITY_SECURE_CLIENT_H_
#define SKRULL_TESTS_SERVER_SECURITY_SECURE_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {

// What a client brings. Empty = nothing of the kind.
struct Identity {
  std::string ca = {};  // PEM; empty = plaintext
  std::string cert = {};
  std::string key = {};
  std::string server_name = {};
  std::string token = {};
  // Values of the `authorization` metadata, as they are, beside the token's.
  std::vector<std::string> authorization = {};
};

// On a connection of its own, which is made anew for each client. Calls have a
// deadline of two minutes, and do not wait for a connection that fails.
class SecureClient {
 public:
  SecureClient(const std::string& address, Identity identity);

  v1::PlannerService::Stub& stub() { return *stub_; }

  // Adds identity and deadline to a call.
  void Prepare(grpc::ClientContext* context) const;

  // One call of a unary method: one of the service by its name, e.g. "GetJob",
  // or any by its path.
  grpc::Status Call(const std::string& method,
                    const google::protobuf::Message& request,
                    google::protobuf::Message* response = nullptr);

  // The answer to one batch on a stream of its own: the stream's status if it
  // ended without an answer.
  grpc::Status StreamOne(const v1::PlanBatchRequest& batch);

  // The simplest call: are we let in?
  grpc::Status Ping() { return Call("ListJobs", v1::ListJobsRequest()); }

 private:
  const Identity identity_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

// A line of an auth file that lets `token` in.
std::string AuthLine(const std::string& subject, const std::string& role,
                     const std::string& token);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_SECURITY_SECURE_CLIENT_H_
