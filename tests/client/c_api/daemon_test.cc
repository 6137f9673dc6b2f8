// The clients' C interface against a real daemon.
#include "skrull/tests/support/daemon.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "skrull/c_api/skrull_client.h"
#include "skrull/tests/client/c_api/c_handles.h"

namespace skrull::testing {
namespace {

CDaemon Connect(const Daemon& daemon, double unreachable_after_seconds = 10) {
  const std::string address = daemon.address();
  skrull_client_daemon_options options = {};
  options.struct_bytes = sizeof options;
  options.address = address.c_str();
  options.unreachable_after_seconds = unreachable_after_seconds;
  options.prefetch_depth = 3;
  skrull_client_daemon* connection = nullptr;
  REQUIRE(skrull_client_daemon_create(&options, &connection) == 0);
  return CDaemon(connection);
}

CJob CreateJob(const CDaemon& daemon, const char* name) {
  skrull_client_job* job = nullptr;
  const int32_t code =
      skrull_client_daemon_create_job(daemon.get(), name, kCJob, 0, 0, &job);
  CAPTURE(LastError().message);
  REQUIRE(code == 0);
  return CJob(job);
}

std::string BytesOf(const skrull_client_plan* plan) {
  const skrull_client_plan_info info = InfoOf(plan);
  return {info.bytes, static_cast<size_t>(info.byte_count)};
}

std::string LocalBytes(const char* job, const std::vector<int64_t>& lengths,
                       int64_t step) {
  const Planner planner = MakePlanner();
  skrull_client_batch batch = BatchOf(lengths, step);
  batch.job = job;
  skrull_client_plan* plan = nullptr;
  REQUIRE(skrull_client_planner_plan(planner.get(), &batch, &plan) == 0);
  return BytesOf(Plan(plan).get());
}

TEST_CASE("jobs and plans of a daemon") {
  const Daemon daemon;
  const CDaemon connection = Connect(daemon);
  REQUIRE(skrull_client_daemon_check_health(connection.get(), 0) == 0);
  const CJob job = CreateJob(connection, "run7");
  skrull_client_job_info told = {};
  told.struct_bytes = sizeof told;
  REQUIRE(skrull_client_job_describe(job.get(), &told) == 0);
  CHECK(std::string(told.name) == "run7");
  CHECK(told.generation == 1);
  CHECK(told.calibration_epoch == 0);

  const std::vector<int64_t> lengths = {30, 250, 7};
  skrull_client_batch batch = BatchOf(lengths, 4);
  batch.job = "run7";
  batch.generation = 1;
  skrull_client_plan* plan = nullptr;
  REQUIRE(skrull_client_daemon_plan(connection.get(), &batch, 0, &plan) == 0);
  const Plan owned(plan);
  CHECK(BytesOf(plan) == LocalBytes("run7", lengths, 4));
  CHECK(InfoOf(plan).committed == 1);

  skrull_client_rank_plan* share = nullptr;
  REQUIRE(skrull_client_daemon_rank_plan(connection.get(), &batch, 2, 0,
                                         &share) == 0);
  skrull_rank_plan view = {};
  view.struct_bytes = sizeof view;
  REQUIRE(skrull_client_rank_plan_view(share, 4, &view) == 0);
  CHECK(std::string(view.digest) == InfoOf(plan).digest);
  skrull_client_rank_plan_destroy(share);

  skrull_client_job* missing = nullptr;
  CHECK(skrull_client_daemon_get_job(connection.get(), "nobody", 0, &missing) ==
        SKRULL_CLIENT_NOT_FOUND);
  CHECK(std::string(LastError().reason) == "JOB_NOT_FOUND");
  CHECK_FALSE(std::string(LastError().request_id).empty());
  CHECK_THAT(LastError().message,
             !Catch::Contains(std::string(LastError().request_id)));
}

TEST_CASE("a stream tells which batch is refused") {
  const Daemon daemon;
  CDaemon connection = Connect(daemon);
  const CJob job = CreateJob(connection, "run7");
  skrull_client_stream_options options = {};
  options.struct_bytes = sizeof options;
  options.job = "run7";
  skrull_client_stream* opened = nullptr;
  REQUIRE(skrull_client_stream_create(connection.get(), &options, &opened) ==
          0);
  const CStream stream(opened);
  connection.reset();  // the stream lives on

  const std::vector<int64_t> fits = {30, 7};
  const std::vector<int64_t> too_long = {401};
  for (int64_t step = 0; step < 3; ++step) {
    const skrull_client_batch batch =
        BatchOf(step == 1 ? too_long : fits, step);
    REQUIRE(skrull_client_stream_send(stream.get(), &batch) == 0);
  }
  skrull_client_batch more = BatchOf(fits, 3);
  CHECK(skrull_client_stream_send(stream.get(), &more) ==
        SKRULL_CLIENT_RESOURCE_EXHAUSTED);
  more.job = "run7";
  CHECK(skrull_client_stream_send(stream.get(), &more) ==
        SKRULL_CLIENT_INVALID_ARGUMENT);
  int32_t pending = 0;
  REQUIRE(skrull_client_stream_pending(stream.get(), &pending) == 0);
  CHECK(pending == 3);

  for (int64_t step = 0; step < 3; ++step) {
    CAPTURE(step);
    skrull_client_answer answer = {};
    answer.struct_bytes = sizeof answer;
    skrull_client_plan* plan = nullptr;
    const int32_t code =
        skrull_client_stream_next(stream.get(), 0, &answer, &plan);
    const Plan owned(plan);
    CHECK(code == (step == 1 ? SKRULL_CLIENT_FAILED_PRECONDITION : 0));
    CHECK(answer.answered == 1);
    CHECK(answer.step == step);
    if (step != 1) CHECK(BytesOf(plan) == LocalBytes("run7", fits, step));
  }
  skrull_client_answer answer = {};
  answer.struct_bytes = sizeof answer;
  skrull_client_plan* plan = nullptr;
  CHECK(skrull_client_stream_next(stream.get(), 1, &answer, &plan) ==
        SKRULL_CLIENT_FAILED_PRECONDITION);
  CHECK(answer.answered == 0);
}

TEST_CASE("ranks meet, and report") {
  const Daemon daemon;
  const CDaemon connection = Connect(daemon);
  const CJob job = CreateJob(connection, "run7");
  const std::string offer("\0binary\xff", 8);
  std::vector<std::string> met(4);
  std::vector<int32_t> codes(4);
  std::vector<std::thread> ranks;
  for (int32_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      skrull_client_meeting meeting = {};
      meeting.struct_bytes = sizeof meeting;
      meeting.job = "run7";
      meeting.key = "start";
      meeting.rank = rank;
      meeting.size = 4;
      meeting.offer = rank == 0 ? offer.data() : nullptr;
      meeting.offer_bytes = rank == 0 ? 8 : 0;
      skrull_client_bytes* bytes = nullptr;
      const auto at = static_cast<size_t>(rank);
      codes[at] =
          skrull_client_daemon_meet(connection.get(), &meeting, 0, &bytes);
      met[at].assign(skrull_client_bytes_data(bytes),
                     static_cast<size_t>(skrull_client_bytes_size(bytes)));
      skrull_client_bytes_destroy(bytes);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(codes == std::vector<int32_t>(4, 0));
  CHECK(met == std::vector<std::string>(4, offer));

  const std::vector<int64_t> lengths = {100, 100, 100, 100};
  skrull_client_batch batch = BatchOf(lengths);
  batch.job = "run7";
  skrull_client_plan* plan = nullptr;
  REQUIRE(skrull_client_daemon_plan(connection.get(), &batch, 0, &plan) == 0);
  skrull_client_plan_destroy(plan);
  skrull_client_step_report report = {};
  report.struct_bytes = sizeof report;
  report.job = "run7";
  report.outcome = 1;
  report.step_seconds = -1;
  report.attention_seconds = -1;
  report.exchange_seconds = -1;
  skrull_client_report_answer answer = {};
  answer.struct_bytes = sizeof answer;
  REQUIRE(skrull_client_daemon_report(connection.get(), &report, 0, &answer) ==
          0);
  CHECK(answer.attempt == 1);
  CHECK(answer.calibration_epoch == 1);
  report.outcome = 3;
  CHECK(skrull_client_daemon_report(connection.get(), &report, 0, &answer) ==
        SKRULL_CLIENT_INVALID_ARGUMENT);
  CHECK(std::string(LastError().field) == "outcome");
}

TEST_CASE("plans of this process while the daemon is gone") {
  Daemon daemon;
  CDaemon connection = Connect(daemon, -1);
  const CJob job = CreateJob(connection, "run7");
  skrull_client_fallback* made = nullptr;
  REQUIRE(skrull_client_fallback_create(connection.get(), job.get(), &made) ==
          0);
  connection.reset();  // the fallback lives on
  const std::vector<int64_t> lengths = {30, 250, 7};
  for (int64_t step = 0; step < 3; ++step) {
    CAPTURE(step);
    if (step == 1) daemon.Kill();
    const skrull_client_batch batch = BatchOf(lengths, step);
    skrull_client_plan* plan = nullptr;
    REQUIRE(skrull_client_fallback_plan(made, &batch, 0, &plan) == 0);
    const Plan owned(plan);
    CHECK(BytesOf(plan) == LocalBytes("run7", lengths, step));
    CHECK(InfoOf(plan).committed == (step == 0 ? 1 : 0));
    const std::string reason = InfoOf(plan).fallback_reason;
    if (step == 0) {
      CHECK(reason.empty());
    } else {
      CHECK_THAT(reason, Catch::StartsWith("UNAVAILABLE: "));
    }
  }
  skrull_client_batch named = BatchOf(lengths, 3);
  named.job = "run8";
  skrull_client_plan* plan = nullptr;
  CHECK(skrull_client_fallback_plan(made, &named, 0, &plan) ==
        SKRULL_CLIENT_INVALID_ARGUMENT);
  skrull_client_step_report report = {};
  report.struct_bytes = sizeof report;
  skrull_client_report_answer answer = {};
  answer.struct_bytes = sizeof answer;
  CHECK(skrull_client_fallback_report(made, &report, 0, &answer) ==
        SKRULL_CLIENT_UNAVAILABLE);
  skrull_client_fallback_destroy(made);
}

TEST_CASE("a daemon that is gone, and a fork") {
  Daemon daemon;
  const CDaemon connection = Connect(daemon, -1);
  const CJob job = CreateJob(connection, "run7");
  const pid_t child = ::fork();
  if (child == 0) {
    skrull_client_job* again = nullptr;
    const int32_t code =
        skrull_client_daemon_get_job(connection.get(), "run7", 0, &again);
    skrull_client_error error = {};
    error.struct_bytes = sizeof error;
    skrull_client_last_error(&error);
    const bool right = code == SKRULL_CLIENT_FAILED_PRECONDITION &&
                       std::string(error.reason) == "FORKED";
    skrull_client_daemon_destroy(connection.get());
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);

  daemon.Kill();
  skrull_client_job* again = nullptr;
  CHECK(skrull_client_daemon_get_job(connection.get(), "run7", 5, &again) ==
        SKRULL_CLIENT_UNAVAILABLE);
}

}  // namespace
}  // namespace skrull::testing
