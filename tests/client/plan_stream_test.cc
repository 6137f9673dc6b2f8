// Streams against a service whose answers the test decides.
#include "skrull/client/plan_stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include "skrull/tests/client/fake_planner.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using testing::FakePlanner;
using testing::QuickOptions;
using testing::StreamOfPlans;

v1::StreamPlansResponse StreamAnswerTo(const v1::StreamPlansRequest& request) {
  v1::StreamPlansResponse response;
  response.set_step(request.batch().step());
  response.set_attempt(request.batch().attempt());
  *response.mutable_response() = testing::AnswerTo(request.batch());
  return response;
}

v1::StreamPlansResponse StreamRefusal(const v1::StreamPlansRequest& request,
                                      const grpc::Status& status) {
  v1::StreamPlansResponse response;
  response.set_step(request.batch().step());
  response.set_attempt(request.batch().attempt());
  response.mutable_status()->ParseFromString(status.error_details());
  return response;
}

// A client with its stream to `planner`.
struct Session {
  explicit Session(const FakePlanner& planner, int prefetch_depth = 8) {
    ClientOptions options = QuickOptions(planner.address());
    options.prefetch_depth = prefetch_depth;
    client = *PlannerClient::Create(options);
    stream = *client->StreamPlans(
        {.job = "run7", .generation = 2, .policy = "POLICY_STATIC_CP"});
  }

  std::unique_ptr<PlannerClient> client;
  std::unique_ptr<PlanStream> stream;
};

// The next answer is the plan of `step`.
void RequirePlan(PlanStream& stream, int64_t step) {
  const absl::StatusOr<StreamedPlan> next = stream.Next();
  INFO("step " << step << ": " << next.status());
  REQUIRE(next.ok());
  INFO(next->plan.status());
  REQUIRE(next->plan.ok());
  REQUIRE(next->step == step);
  REQUIRE(next->plan->step == step);
}

TEST_CASE("PlanStream: answers come in the order of sending", "[client]") {
  FakePlanner planner;
  std::atomic<bool> as_asked = true;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      as_asked = as_asked && request.batch().job() == "run7" &&
                 request.batch().generation() == 2 &&
                 request.batch().policy() == v1::POLICY_STATIC_CP;
      stream->Write(StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner, 3);
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(session.stream->Send(step, {100, step + 1}).ok());
  }
  for (int64_t step = 0; step < 200; ++step) {
    RequirePlan(*session.stream, step);
    REQUIRE(session.stream->Send(step + 3, {100, step + 4}).ok());
  }
  CHECK(session.stream->pending() == 3);
  CHECK(as_asked);
}

TEST_CASE("PlanStream: holds no more than its depth", "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) stream->Write(StreamAnswerTo(request));
    return grpc::Status::OK;
  };
  Session session(planner, 2);
  CHECK(absl::IsFailedPrecondition(session.stream->Next().status()));
  REQUIRE(session.stream->Send(0, {1}).ok());
  REQUIRE(session.stream->Send(1, {1}).ok());
  const absl::Status full = session.stream->Send(2, {1});
  CHECK(absl::IsResourceExhausted(full));
  CHECK(GetRefusalDetail(full)->limit == 2);
  RequirePlan(*session.stream, 0);
  CHECK(session.stream->Send(2, {1}).ok());
  RequirePlan(*session.stream, 1);
  RequirePlan(*session.stream, 2);
}

TEST_CASE("PlanStream: a refused batch leaves the others alone", "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      stream->Write(
          request.batch().step() == 1
              ? StreamRefusal(request, testing::RefusalStatus(
                                           grpc::FAILED_PRECONDITION,
                                           "too long", "SEQUENCE_TOO_LONG"))
              : StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  RequirePlan(*session.stream, 0);
  const absl::StatusOr<StreamedPlan> refused = session.stream->Next();
  REQUIRE(refused.ok());
  CHECK(refused->step == 1);
  CHECK(absl::IsFailedPrecondition(refused->plan.status()));
  CHECK(GetRefusalDetail(refused->plan.status())->reason ==
        "SEQUENCE_TOO_LONG");
  RequirePlan(*session.stream, 2);
}

TEST_CASE("PlanStream: a full queue is tried again, in the same order",
          "[client]") {
  FakePlanner planner;
  std::mutex mutex;
  std::map<int64_t, int> tries;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      std::unique_lock<std::mutex> lock(mutex);
      const bool busy = ++tries[request.batch().step()] < 3;
      lock.unlock();
      stream->Write(
          busy ? StreamRefusal(request, testing::RefusalStatus(
                                            grpc::RESOURCE_EXHAUSTED, "full",
                                            "QUEUE_FULL", 0.001))
               : StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  for (int64_t step = 0; step < 5; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  for (int64_t step = 0; step < 5; ++step) RequirePlan(*session.stream, step);
  std::unique_lock<std::mutex> lock(mutex);
  for (const auto& [step, count] : tries) CHECK(count == 3);
}

TEST_CASE("PlanStream: goes on after the stream breaks", "[client]") {
  const grpc::Status end =
      GENERATE(grpc::Status(grpc::UNAVAILABLE, "bye"), grpc::Status::OK);
  FakePlanner planner;
  std::atomic<int> streams = 0;
  // Each stream takes three batches and answers two.
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    ++streams;
    v1::StreamPlansRequest request;
    for (int i = 0; i < 2 && stream->Read(&request); ++i) {
      stream->Write(StreamAnswerTo(request));
    }
    stream->Read(&request);
    return end;
  };
  Session session(planner);
  for (int64_t step = 0; step < 8; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  for (int64_t step = 0; step < 8; ++step) RequirePlan(*session.stream, step);
  CHECK(streams >= 4);
}

TEST_CASE("PlanStream: the batch that kills the stream is found", "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      if (request.batch().step() == 2) {
        return grpc::Status(grpc::RESOURCE_EXHAUSTED, "larger than max");
      }
      stream->Write(StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  for (int64_t step = 0; step < 6; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  for (int64_t step = 0; step < 6; ++step) {
    if (step != 2) {
      RequirePlan(*session.stream, step);
      continue;
    }
    const absl::StatusOr<StreamedPlan> culprit = session.stream->Next();
    REQUIRE(culprit.ok());
    CHECK(culprit->step == 2);
    CHECK(absl::IsResourceExhausted(culprit->plan.status()));
  }
}

TEST_CASE("PlanStream: a daemon without the service fails every batch",
          "[client]") {
  FakePlanner planner;  // stream_plans is not set: UNIMPLEMENTED
  Session session(planner);
  for (int64_t step = 0; step < 4; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  for (int64_t step = 0; step < 4; ++step) {
    const absl::StatusOr<StreamedPlan> next = session.stream->Next();
    REQUIRE(next.ok());
    CHECK(next->step == step);
    CHECK(absl::IsUnimplemented(next->plan.status()));
  }
}

TEST_CASE("PlanStream: an answer that was not asked for fails the stream",
          "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      v1::StreamPlansResponse response = StreamAnswerTo(request);
      response.set_step(response.step() + 1);
      stream->Write(response);
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  REQUIRE(session.stream->Send(0, {1}).ok());
  const absl::StatusOr<StreamedPlan> next = session.stream->Next();
  REQUIRE(next.ok());
  CHECK(absl::IsInternal(next->plan.status()));
}

TEST_CASE("PlanStream: an empty answer is an error, not a crash", "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      v1::StreamPlansResponse response;
      response.set_step(request.batch().step());
      if (response.step() == 1) response.mutable_status();
      if (response.step() == 2) response.mutable_response();
      stream->Write(response);
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(session.stream->Send(step, {1}).ok());
  }
  for (int64_t step = 0; step < 3; ++step) {
    const absl::StatusOr<StreamedPlan> next = session.stream->Next();
    REQUIRE(next.ok());
    CHECK(absl::IsInternal(next->plan.status()));
  }
}

TEST_CASE("PlanStream: a silent stream is opened anew", "[client]") {
  FakePlanner planner;
  std::atomic<int> streams = 0;
  planner.stream_plans = [&](grpc::ServerContext*, StreamOfPlans* stream) {
    const bool silent = ++streams == 1;
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      if (!silent) stream->Write(StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  REQUIRE(session.stream->Send(0, {1}).ok());
  // The first stream never answers; one of the next does.
  absl::StatusOr<StreamedPlan> next = session.stream->Next(milliseconds(200));
  CHECK(absl::IsDeadlineExceeded(next.status()));
  CHECK(session.stream->pending() == 1);
  RequirePlan(*session.stream, 0);
  CHECK(streams >= 2);
}

TEST_CASE("PlanStream: outlives its client, and ends at once when unanswered",
          "[client]") {
  FakePlanner planner;
  planner.stream_plans = [&](auto*, StreamOfPlans* stream) {
    v1::StreamPlansRequest request;
    while (stream->Read(&request)) {
      if (request.batch().step() == 0) stream->Write(StreamAnswerTo(request));
    }
    return grpc::Status::OK;
  };
  Session session(planner);
  session.client.reset();
  REQUIRE(session.stream->Send(0, {1}).ok());
  REQUIRE(session.stream->Send(1, {1}).ok());
  RequirePlan(*session.stream, 0);
  session.stream.reset();
}

}  // namespace
}  // namespace skrull
