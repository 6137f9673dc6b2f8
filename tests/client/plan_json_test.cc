#include "skrull/cli/plan_json.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::cli {
namespace {

std::string Json(const google::protobuf::Message& message) {
  std::string text;
  AppendJson(message, &text);
  return text;
}

TEST_CASE("AppendJson: an empty plan shows every field", "[cli]") {
  v1::Plan plan;
  plan.mutable_summary();
  CHECK(Json(plan) ==
        "{\"job\":\"\",\"step\":0,\"attempt\":0,\"digest\":\"\","
        "\"policy\":\"POLICY_UNSPECIFIED\",\"calibration_epoch\":0,"
        "\"micro_batches\":[],\"blocks\":[],\"summary\":{"
        "\"predicted_seconds\":0,\"lower_bound_seconds\":0,"
        "\"roll_back_count\":0,\"sharded_sequence_count\":0,"
        "\"sharded_token_count\":0,\"micro_batch_count\":0,"
        "\"max_rank_tokens\":0,\"dp_imbalance\":0,\"rank_imbalance\":0,"
        "\"pipeline_seconds\":0,\"pipeline_bubble\":0}}");
}

TEST_CASE("AppendJson: lists, escapes and whole integers", "[cli]") {
  v1::ErrorDetail detail;
  detail.set_reason("a \"b\"\n\xC3\xA4");
  detail.add_indices(std::numeric_limits<int64_t>::max());
  detail.add_indices(std::numeric_limits<int64_t>::min());
  CHECK(Json(detail) ==
        "{\"reason\":\"a \\\"b\\\"\\n\xC3\xA4\",\"field\":\"\",\"indices\":"
        "[9223372036854775807,-9223372036854775808],\"limit\":0}");
}

TEST_CASE("AppendJson: doubles are short and read back the same", "[cli]") {
  v1::PlanSummary summary;
  summary.set_predicted_seconds(0.1);
  summary.set_lower_bound_seconds(1e-7);
  summary.set_dp_imbalance(3);
  CHECK_THAT(Json(summary),
             Catch::Contains("\"predicted_seconds\":0.1,") &&
                 Catch::Contains("\"lower_bound_seconds\":1e-07,") &&
                 Catch::Contains("\"dp_imbalance\":3,"));
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<double> values = {
      std::numeric_limits<double>::min(), std::numeric_limits<double>::max(),
      std::numeric_limits<double>::denorm_min(), -0.0, 1.0 / 3};
  while (values.size() < 2000) {
    double value = 0;
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) {
    summary.set_predicted_seconds(value);
    v1::PlanSummary read;
    REQUIRE(
        google::protobuf::util::JsonStringToMessage(Json(summary), &read).ok());
    REQUIRE(read.predicted_seconds() == value);
  }
}

TEST_CASE("ParsePlanLine: reads what AppendJson wrote", "[cli]") {
  v1::Plan plan;
  plan.set_job("run7");
  plan.set_step(int64_t{1} << 60);
  plan.set_policy(v1::POLICY_STATIC_CP);
  v1::MicroBatch* micro_batch = plan.add_micro_batches();
  for (int i = 0; i < 5; ++i) {
    micro_batch->add_placements()->set_sequence(i);
  }
  plan.add_micro_batches();
  plan.add_blocks()->set_degree(8);
  plan.mutable_summary()->set_rank_imbalance(1.0 / 3);
  const absl::StatusOr<PlanLine> line = ParsePlanLine(Json(plan));
  REQUIRE(line.ok());
  REQUIRE(line->planned);
  CHECK(google::protobuf::util::MessageDifferencer::Equals(line->plan, plan));
}

TEST_CASE("RefusalJson: has the contract's form and reads back", "[cli]") {
  const std::string text =
      RefusalJson(3, absl::FailedPreconditionError("a \"b\""));
  CHECK(text ==
        "{\"batch\":3,\"error\":{\"code\":\"FAILED_PRECONDITION\","
        "\"message\":\"a \\\"b\\\"\"}}");
  const absl::StatusOr<PlanLine> line = ParsePlanLine(text);
  REQUIRE(line.ok());
  CHECK_FALSE(line->planned);
  CHECK(line->batch == 3);
  CHECK(line->code == "FAILED_PRECONDITION");
}

}  // namespace
}  // namespace skrull::cli
