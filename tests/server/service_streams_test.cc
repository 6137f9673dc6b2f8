// StreamPlans through a real daemon.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "skrull/tests/server/service_test_util.h"

namespace skrull::testing {
namespace {

using Stream =
    grpc::ClientReaderWriter<v1::StreamPlansRequest, v1::StreamPlansResponse>;

v1::StreamPlansRequest StreamBatch(const std::string& job, int64_t step,
                                   const std::vector<int64_t>& lengths) {
  v1::StreamPlansRequest request;
  *request.mutable_batch() = Batch(job, step, lengths);
  return request;
}

TEST_CASE("Service: a stream answers in order, refusals included",
          "[server][service]") {
  // A slow machine may have a small batch wait for a large one.
  Daemon daemon({"--planning_threads=4", "--max_queue_seconds=600"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  grpc::ClientContext context;
  const auto stream = client.stub().StreamPlans(&context);
  constexpr int kSteps = 200;
  std::jthread writer([&] {
    for (int step = 0; step < kSteps; ++step) {
      // Large batches before small ones, so that later plans are ready first.
      const size_t size = step % 10 == 0 ? 20000 : 3;
      std::vector<int64_t> lengths(size, 1 + step);
      if (step % 7 == 3) lengths[1] = 5000;  // can never fit
      stream->Write(StreamBatch("run", step, lengths));
    }
    stream->WritesDone();
  });
  v1::StreamPlansResponse response;
  int step = 0;
  for (; stream->Read(&response); ++step) {
    INFO("step " << step);
    CHECK(response.step() == step);
    if (step % 7 == 3) {
      REQUIRE(response.has_status());
      CHECK(response.status().code() ==
            static_cast<int>(grpc::StatusCode::FAILED_PRECONDITION));
      v1::ErrorDetail detail;
      REQUIRE(response.status().details_size() == 1);
      REQUIRE(response.status().details(0).UnpackTo(&detail));
      CHECK(detail.reason() == "SEQUENCE_TOO_LONG");
      CHECK(detail.indices(0) == 1);
    } else {
      REQUIRE(response.has_response());
      CHECK(response.response().plan().step() == step);
      CHECK(response.response().committed());
    }
  }
  CHECK(step == kSteps);
  CHECK(stream->Finish().ok());
}

TEST_CASE("Service: a streamed plan and a called one are the same",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  grpc::ClientContext context;
  const auto stream = client.stub().StreamPlans(&context);
  const std::vector<int64_t> lengths = {5, 1500, 70, 900, 900};
  REQUIRE(stream->Write(StreamBatch("run", 1, lengths)));
  v1::StreamPlansResponse streamed;
  REQUIRE(stream->Read(&streamed));
  v1::PlanBatchResponse called;
  REQUIRE(client.Plan(Batch("run", 1, lengths), &called).ok());
  CHECK(streamed.response().plan().SerializeAsString() ==
        called.plan().SerializeAsString());
  // An empty message is a refused batch, not the end of the stream.
  REQUIRE(stream->Write(v1::StreamPlansRequest()));
  REQUIRE(stream->Read(&streamed));
  CHECK(streamed.status().code() ==
        static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  stream->WritesDone();
  CHECK_FALSE(stream->Read(&streamed));
  CHECK(stream->Finish().ok());
}

TEST_CASE("Service: a cancelled stream drops what is not planned",
          "[server][service]") {
  Daemon daemon({"--planning_threads=1"});
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 100)).ok());
  const auto slow = client.StartSlowPlan(1);
  const auto queued = client.StartSlowPlan(2);
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") == 1; }));
  grpc::ClientContext context;
  const auto stream = client.stub().StreamPlans(&context);
  for (int step = 0; step < 3; ++step) {
    REQUIRE(stream->Write(StreamBatch("run", step, {1, 2, 3})));
  }
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_planning_queue_depth") >= 3; }));
  context.TryCancel();
  CHECK(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(slow->status.get().ok());
  CHECK(queued->status.get().ok());
  REQUIRE(Eventually(
      [&] { return daemon.Metric("skrull_dropped_requests_total") == 3; }));
  CHECK(daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}") == 0);
  CHECK(Eventually([&] {
    return daemon.Metric(
               "skrull_rpcs_total{code=\"CANCELLED\",method="
               "\"StreamPlans\"}") == 1;
  }));
}

TEST_CASE("Service: a client that reads nothing is held back",
          "[server][service]") {
  Daemon daemon;
  Client client(daemon.address());
  REQUIRE(client.CreateJob("run", SmallSpec(2, 2, 1000)).ok());
  grpc::ClientContext context;
  const auto stream = client.stub().StreamPlans(&context);
  // Far more than connections buffer: without flow control the daemon would
  // read and plan it all.
  constexpr int kSteps = 400;
  std::atomic<int> written = 0;
  std::jthread writer([&] {
    for (int step = 0; step < kSteps; ++step) {
      if (!stream->Write(
              StreamBatch("run", step, std::vector<int64_t>(20000, 700)))) {
        return;
      }
      ++written;
    }
    stream->WritesDone();
  });
  // Once all is still, the daemon has planned what its window and the
  // connection's buffers let it.
  double planned = -1;
  REQUIRE(Eventually([&] {
    const double before = planned;
    planned = daemon.Metric("skrull_plans_total{policy=\"POLICY_OPTIMIZED\"}");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return planned > 0 && planned == before;
  }));
  CHECK(planned < kSteps / 2);
  CHECK(written < kSteps);
  v1::StreamPlansResponse response;
  int read = 0;
  for (; stream->Read(&response); ++read) CHECK(response.step() == read);
  CHECK(read == kSteps);
  CHECK(stream->Finish().ok());
}

}  // namespace
}  // namespace skrull::testing
