// What the clients' C interface refuses, and how it says so.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "skrull/c_api/skrull_client.h"
#include "skrull/tests/client/c_api/c_handles.h"

namespace skrull::testing {
namespace {

TEST_CASE("a failure tells all that the refusal has") {
  const Planner planner = MakePlanner();
  skrull_client_plan* plan = nullptr;
  const std::vector<int64_t> lengths = {5, 401, 7, 9000};
  const skrull_client_batch batch = BatchOf(lengths);
  CHECK(skrull_client_planner_plan(planner.get(), &batch, &plan) ==
        SKRULL_CLIENT_FAILED_PRECONDITION);
  CHECK(plan == nullptr);
  const skrull_client_error error = LastError();
  CHECK(error.code == SKRULL_CLIENT_FAILED_PRECONDITION);
  CHECK_THAT(error.message, Catch::Contains("401"));
  CHECK(std::string(error.reason) == "SEQUENCE_TOO_LONG");
  CHECK(std::string(error.field) == "lengths");
  CHECK(
      std::vector<int64_t>(error.indices, error.indices + error.index_count) ==
      std::vector<int64_t>{1, 3});
  CHECK(error.has_limit == 1);
  CHECK(error.limit == 400);
  CHECK(error.retry_after_seconds < 0);
  CHECK(std::string(error.request_id).empty());
}

TEST_CASE("each thread has its own last error") {
  skrull_client_plan* plan = nullptr;
  REQUIRE(skrull_client_plan_parse("x", 1, &plan) ==
          SKRULL_CLIENT_INVALID_ARGUMENT);
  int32_t code = -1;
  std::string message = "?";
  std::thread other([&] {
    const skrull_client_error error = LastError();
    code = error.code;
    message = error.message;
  });
  other.join();
  CHECK(code == 0);
  CHECK(message.empty());
  CHECK(std::string(LastError().field) == "bytes");
}

TEST_CASE("codes have the names of gRPC's") {
  CHECK(std::string(skrull_client_code_name(0)) == "OK");
  CHECK(std::string(skrull_client_code_name(SKRULL_CLIENT_UNAVAILABLE)) ==
        "UNAVAILABLE");
  CHECK(std::string(skrull_client_code_name(SKRULL_CLIENT_UNAUTHENTICATED)) ==
        "UNAUTHENTICATED");
  CHECK(std::string(skrull_client_code_name(17)) == "UNKNOWN");
  CHECK(std::string(skrull_client_code_name(-1)) == "UNKNOWN");
}

TEST_CASE("structs of other versions") {
  const Planner planner = MakePlanner();
  const std::vector<int64_t> lengths = {5, 9};
  struct Later {
    skrull_client_batch known;
    int64_t unknown;
  } later = {BatchOf(lengths), 0};
  skrull_client_plan* plan = nullptr;

  later.known.struct_bytes = sizeof later;
  REQUIRE(skrull_client_planner_plan(planner.get(), &later.known, &plan) == 0);
  skrull_client_plan_destroy(plan);
  later.unknown = 1;
  CHECK(skrull_client_planner_plan(planner.get(), &later.known, &plan) ==
        SKRULL_CLIENT_UNIMPLEMENTED);
  CHECK_THAT(LastError().message, Catch::Contains("batch: byte"));

  skrull_client_batch batch = BatchOf(lengths);
  for (int64_t bytes : {int64_t{0}, int64_t{-8}, int64_t{8},
                        batch.struct_bytes + 4, int64_t{1} << 40}) {
    CAPTURE(bytes);
    batch.struct_bytes = bytes;
    CHECK(skrull_client_planner_plan(planner.get(), &batch, &plan) ==
          SKRULL_CLIENT_INVALID_ARGUMENT);
    CHECK(std::string(LastError().field) == "batch.struct_bytes");
  }
  batch = BatchOf(lengths);
  batch.reserved = 1;
  CHECK(skrull_client_planner_plan(planner.get(), &batch, &plan) ==
        SKRULL_CLIENT_UNIMPLEMENTED);

  skrull_client_error small = {};
  CHECK(skrull_client_last_error(&small) == SKRULL_CLIENT_INVALID_ARGUMENT);
  CHECK(skrull_client_last_error(nullptr) == SKRULL_CLIENT_INVALID_ARGUMENT);
}

TEST_CASE("NULL is an argument that is refused") {
  const Planner planner = MakePlanner();
  const Plan plan = MakePlan(planner, {5, 9});
  skrull_client_plan* made = nullptr;
  skrull_client_rank_plan* share = nullptr;
  skrull_client_bytes* bytes = nullptr;
  skrull_client_planner* another = nullptr;
  skrull_client_planner_options options = {};
  options.struct_bytes = sizeof options;
  skrull_client_batch batch = {};
  batch.struct_bytes = sizeof batch;
  batch.length_count = 2;
  int64_t lengths[2] = {};
  int32_t count = 0;
  const std::vector<int32_t> codes = {
      skrull_client_planner_create(nullptr, &another),
      skrull_client_planner_create(&options, &another),
      skrull_client_planner_plan(nullptr, &batch, &made),
      skrull_client_planner_plan(planner.get(), nullptr, &made),
      skrull_client_planner_plan(planner.get(), &batch, &made),
      skrull_client_planner_plan(planner.get(), &batch, nullptr),
      skrull_client_plan_describe(plan.get(), nullptr),
      skrull_client_plan_lengths(plan.get(), nullptr, 2),
      skrull_client_plan_lengths(plan.get(), lengths, 3),
      skrull_client_plan_lengths(nullptr, lengths, 2),
      skrull_client_plan_json(plan.get(), nullptr),
      skrull_client_plan_report(plan.get(), nullptr, &bytes),
      skrull_client_plan_rank(nullptr, 0, &share),
      skrull_client_plan_rank(plan.get(), -1, &share),
      skrull_client_plan_parse(nullptr, 0, &made),
      skrull_client_plan_parse("", -1, &made),
      skrull_client_describe_job_spec(nullptr, nullptr),
      skrull_client_daemon_check_health(nullptr, 1),
      skrull_client_stream_pending(nullptr, &count),
  };
  for (size_t i = 0; i < codes.size(); ++i) {
    CAPTURE(i);
    CHECK(codes[i] == SKRULL_CLIENT_INVALID_ARGUMENT);
  }
  skrull_client_plan_destroy(nullptr);
  skrull_client_planner_destroy(nullptr);
  skrull_client_rank_plan_destroy(nullptr);
  skrull_client_job_destroy(nullptr);
  skrull_client_daemon_destroy(nullptr);
  skrull_client_stream_destroy(nullptr);
  skrull_client_bytes_destroy(nullptr);
  CHECK(skrull_client_bytes_size(nullptr) == 0);
  CHECK(std::string(skrull_client_bytes_data(nullptr)).empty());
}

TEST_CASE("a view is of a rank of the pool") {
  const Plan plan = MakePlan(MakePlanner(), {5, 9});
  skrull_client_rank_plan* share = nullptr;
  REQUIRE(skrull_client_plan_rank(plan.get(), 3, &share) == 0);
  skrull_rank_plan view = {};
  view.struct_bytes = sizeof view;
  CHECK(skrull_client_rank_plan_view(share, 3, &view) ==
        SKRULL_CLIENT_INVALID_ARGUMENT);
  CHECK(std::string(LastError().field) == "ranks");
  CHECK(view.digest == nullptr);
  CHECK(skrull_client_rank_plan_view(share, 4, &view) == 0);
  CHECK(view.rank == 3);
  skrull_client_rank_plan_destroy(share);
}

TEST_CASE("options of a connection that are out of range are named") {
  using Options = skrull_client_daemon_options;
  const auto field_after = [](void (*spoil)(Options*)) {
    Options options = {};
    options.struct_bytes = sizeof options;
    options.address = "127.0.0.1:1";
    spoil(&options);
    skrull_client_daemon* daemon = nullptr;
    CHECK(skrull_client_daemon_create(&options, &daemon) ==
          SKRULL_CLIENT_INVALID_ARGUMENT);
    return std::string(LastError().field);
  };
  CHECK(field_after([](Options* o) { o->timeout_seconds = -1; }) ==
        "timeout_seconds");
  CHECK(field_after([](Options* o) { o->timeout_seconds = std::nan(""); }) ==
        "timeout_seconds");
  CHECK(field_after([](Options* o) { o->unreachable_after_seconds = 1e9; }) ==
        "unreachable_after_seconds");
  CHECK(field_after([](Options* o) { o->prefetch_depth = 5000; }) ==
        "prefetch_depth");
  CHECK(field_after([](Options* o) { o->allow_plaintext_token = 2; }) ==
        "allow_plaintext_token");
}

}  // namespace
}  // namespace skrull::testing
