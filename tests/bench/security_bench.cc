// What telling callers apart and encrypting cost a round trip, measured on real
// daemons over loopback, taken in turns so that the machine's other work meets
// all alike: see docs/benchmarks.md.
//
//   security_bench [--benchmark_out=FILE] [--baseline=SKRULLD]
//
// --baseline adds another daemon's program, in plain text, to compare with.
// Other --benchmark_* flags are accepted and have no effect. A refused call
// ends the bench with status 1.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "skrull/server/convert.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull {
namespace {

using Clock = std::chrono::steady_clock;
using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

constexpr int kSamples = 2000;
constexpr int kWarmUp = 100;
constexpr int kHandshakes = 100;
constexpr int kBatchSize = 256;
constexpr char kToken[] = "skrull_bench-0123456789-token";

// One daemon, and how it is reached.
struct Subject {
  std::string name;
  std::unique_ptr<testing::Daemon> daemon;
  Credentials credentials;
  std::unique_ptr<v1::PlannerService::Stub> stub = nullptr;
  // Seconds of a step that is planned, one that is committed already, and of a
  // call on a connection of its own.
  std::vector<double> planned = {};
  std::vector<double> repeated = {};
  std::vector<double> connected = {};
};

std::unique_ptr<v1::PlannerService::Stub> Connect(const Subject& subject) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::PlannerService::NewStub(grpc::CreateCustomChannel(
      subject.daemon->address(), subject.credentials, arguments));
}

void Require(const grpc::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error_message());
}

// Adds the token in plain text, which gRPC's own credentials never do.
void Prepare(const Subject& subject, grpc::ClientContext* context) {
  if (subject.name == "token") {
    context->AddMetadata("authorization", std::string("Bearer ") + kToken);
  }
}

double PlanSeconds(const Subject& subject, const v1::PlanBatchRequest& batch) {
  grpc::ClientContext context;
  Prepare(subject, &context);
  v1::PlanBatchResponse response;
  const auto start = Clock::now();
  Require(subject.stub->PlanBatch(&context, batch, &response));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double ConnectSeconds(const Subject& subject) {
  grpc::ClientContext context;
  Prepare(subject, &context);
  v1::ListJobsResponse response;
  const auto start = Clock::now();
  Require(Connect(subject)->ListJobs(&context, {}, &response));
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void CreateJob(const Subject& subject) {
  grpc::ClientContext context;
  Prepare(subject, &context);
  v1::CreateJobRequest request;
  request.set_name("latency");
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_model()->set_hidden_size(896);
  spec.mutable_model()->set_layer_count(24);
  spec.mutable_model()->set_attention_head_count(14);
  spec.mutable_parallelism()->set_dp_size(4);
  spec.mutable_parallelism()->set_cp_size(8);
  spec.mutable_memory()->set_bucket_size_tokens(26'000);
  v1::Job job;
  Require(subject.stub->CreateJob(&context, request, &job));
}

std::vector<Subject> MakeSubjects(const testing::TempDir& directory,
                                  const std::string& baseline) {
  testing::CertificateAuthority ca("bench");
  const testing::Issued server = ca.IssueServer();
  const auto path = [&](const std::string& name, const std::string& text) {
    testing::ReplaceFile(directory.path() / name, text);
    return (directory.path() / name).string();
  };
  const std::string auth =
      "--auth_file=" +
      path("auth", std::string("bench owner sha256:") + Sha256Hex(kToken));
  const std::vector<std::string> tls = {
      "--tls_cert_file=" + path("crt", server.cert),
      "--tls_key_file=" + path("key", server.key)};
  const Credentials trusting =
      grpc::SslCredentials({ca.cert(), /*private key*/ "", /*chain*/ ""});
  std::vector<Subject> subjects;
  const auto add = [&](const std::string& name, std::vector<std::string> flags,
                       const Credentials& credentials) {
    flags.push_back("--log_level=error");
    subjects.push_back({.name = name,
                        .daemon = std::make_unique<testing::Daemon>(flags),
                        .credentials = credentials});
    subjects.back().stub = Connect(subjects.back());
    CreateJob(subjects.back());
  };
  add("plain", {}, grpc::InsecureChannelCredentials());
  if (!baseline.empty()) {
    setenv("SKRULLD", baseline.c_str(), 1);
    add("baseline", {}, grpc::InsecureChannelCredentials());
    unsetenv("SKRULLD");
  }
  add("token", {auth}, grpc::InsecureChannelCredentials());
  add("TLS", tls, trusting);
  add("TLS and token", {tls[0], tls[1], auth},
      grpc::CompositeChannelCredentials(trusting,
                                        grpc::AccessTokenCredentials(kToken)));
  return subjects;
}

void Measure(std::vector<Subject>* subjects) {
  v1::PlanBatchRequest batch;
  batch.set_job("latency");
  for (int i = 0; i < kBatchSize; ++i) batch.add_lengths(100 + 37 * i);
  for (int step = 0; step < kSamples + kWarmUp; ++step) {
    batch.set_step(step);
    for (Subject& subject : *subjects) {
      const double planned = PlanSeconds(subject, batch);
      const double repeated = PlanSeconds(subject, batch);
      if (step < kWarmUp) continue;
      subject.planned.push_back(planned);
      subject.repeated.push_back(repeated);
    }
  }
  for (int i = 0; i < kHandshakes; ++i) {
    for (Subject& subject : *subjects) {
      subject.connected.push_back(ConnectSeconds(subject));
    }
  }
}

double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void Print(const std::vector<Subject>& subjects, const std::string& json) {
  std::string rows;
  const auto print = [&](const char* what, std::vector<double> Subject::* of) {
    const double plain = Median(subjects.front().*of);
    for (const Subject& subject : subjects) {
      const double median = Median(subject.*of);
      std::printf("%-32s %-14s %9.1f us  %6.3f x plain\n", what,
                  subject.name.c_str(), median * 1e6, median / plain);
      rows += std::string(rows.empty() ? "" : ",") + "\n    {\"name\": \"" +
              what + ", " + subject.name +
              "\", \"value\": " + std::to_string(median) +
              ", \"ratio\": " + std::to_string(median / plain) +
              ", \"unit\": \"s\"}";
    }
  };
  print("PlanBatch, 256 lengths", &Subject::planned);
  print("PlanBatch, committed before", &Subject::repeated);
  print("a connection and one call", &Subject::connected);
  if (json.empty()) return;
  std::ofstream(json) << "{\n  \"benchmarks\": [" << rows << "\n  ]\n}\n";
}

int Run(const std::string& json, const std::string& baseline) {
  const testing::TempDir directory;
  std::vector<Subject> subjects = MakeSubjects(directory, baseline);
  Measure(&subjects);
  Print(subjects, json);
  return 0;
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  std::string json, baseline;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string out = "--benchmark_out=";
    const std::string base = "--baseline=";
    if (argument.starts_with(out)) {
      json = argument.substr(out.size());
    } else if (argument.starts_with(base)) {
      baseline = argument.substr(base.size());
    } else if (!argument.starts_with("--benchmark_")) {
      std::fprintf(stderr,
                   "usage: security_bench [--benchmark_out=FILE] "
                   "[--baseline=SKRULLD]\n");
      return 2;
    }
  }
  try {
    return skrull::Run(json, baseline);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "security_bench: %s\n", exception.what());
    return 1;
  }
}
