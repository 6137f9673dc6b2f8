// Statuses to the wire and back.
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

// What a peer receives.
v1::RpcStatus Sent(const absl::Status& status) {
  v1::RpcStatus received;
  REQUIRE(received.ParseFromString(StatusToProto(status).SerializeAsString()));
  return received;
}

v1::ErrorDetail DetailOf(const v1::RpcStatus& status) {
  v1::ErrorDetail detail;
  REQUIRE(status.details_size() == 1);
  REQUIRE(status.details(0).UnpackTo(&detail));
  return detail;
}

TEST_CASE("StatusToProto: every reason survives the wire with its detail",
          "[server][convert]") {
  for (ErrorReason reason : AllErrorReasons()) {
    if (reason == ErrorReason::kUnspecified) continue;
    ErrorDetail detail;
    detail.reason = reason;
    detail.field = "cost.intra_node.table[3].bytes";
    detail.indices = {0, 7, 1 << 20};
    detail.limit = 1234567890123;
    detail.retry_after_seconds = 1.25;
    const absl::Status status = MakeError(detail, "what was wrong");
    const v1::RpcStatus proto = Sent(status);
    CAPTURE(ErrorReasonName(reason));
    CHECK(proto.code() == static_cast<int>(status.code()));
    CHECK(proto.message() == "what was wrong");
    CHECK(DetailOf(proto).reason() == ErrorReasonName(reason));
    CHECK(DetailOf(proto).retry_after().seconds() == 1);
    CHECK(DetailOf(proto).retry_after().nanos() == 250000000);
    const absl::Status back = StatusFromProto(proto);
    CHECK(back == status);
    CHECK(GetErrorDetail(back) == detail);
  }
}

TEST_CASE("StatusToProto: what is unset stays unset", "[server][convert]") {
  const v1::RpcStatus proto = Sent(FieldError("", "x"));
  CHECK(!DetailOf(proto).has_limit());
  CHECK(!DetailOf(proto).has_retry_after());
  CHECK(DetailOf(proto).indices().empty());
  CHECK(!GetErrorDetail(StatusFromProto(proto))->limit);
  // A limit of 0 is one.
  ErrorDetail detail;
  detail.reason = ErrorReason::kLimitExceeded;
  detail.limit = 0;
  CHECK(GetErrorDetail(StatusFromProto(Sent(MakeError(detail, "x")))) ==
        detail);
}

TEST_CASE("StatusToProto: every code survives, with no detail if it has none",
          "[server][convert]") {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              code == 0 ? "" : "text");
    const v1::RpcStatus proto = Sent(status);
    CHECK(proto.code() == code);
    CHECK(proto.details_size() == 0);
    CHECK(StatusFromProto(proto) == status);
  }
}

TEST_CASE("StatusToProto: lists at most 32 indices", "[server][convert]") {
  ErrorDetail detail;
  detail.reason = ErrorReason::kSequenceTooLong;
  for (int i = 0; i < 100; ++i) detail.indices.push_back(i);
  CHECK(DetailOf(Sent(MakeError(detail, "x"))).indices_size() == 32);
}

TEST_CASE("StatusToProto: bytes that are no text are escaped",
          "[server][convert]") {
  // A string field with such bytes would make the whole status unreadable.
  const v1::RpcStatus proto =
      Sent(FieldError("bad\xff", "quotes \xc3\xa4 and \x80"));
  CHECK(proto.message() == "bad\\xff: quotes \\xc3\\xa4 and \\x80");
  CHECK(DetailOf(proto).field() == "bad\\xff");
}

TEST_CASE("StatusToProto: an absurd time to retry stays a valid duration",
          "[server][convert]") {
  ErrorDetail detail;
  detail.reason = ErrorReason::kQueueFull;
  detail.retry_after_seconds =
      GENERATE(-1.0, 1e300, std::numeric_limits<double>::infinity(),
               std::numeric_limits<double>::quiet_NaN(), 0.9999999999);
  const v1::ErrorDetail sent = DetailOf(Sent(MakeError(detail, "x")));
  CHECK(sent.retry_after().seconds() >= 0);
  CHECK(sent.retry_after().seconds() <= 315576000000);
  CHECK(sent.retry_after().nanos() >= 0);
  CHECK(sent.retry_after().nanos() < 1000000000);
}

TEST_CASE("StatusFromProto: codes and reasons of another version",
          "[server][convert]") {
  v1::RpcStatus proto;
  proto.set_message("text");
  for (int code : {-1, 17, 1000, std::numeric_limits<int>::max(),
                   std::numeric_limits<int>::min()}) {
    proto.set_code(code);
    CHECK(StatusFromProto(proto) == absl::UnknownError("text"));
  }
  // The code tells what to do when the reason is not known.
  proto.set_code(8);
  v1::ErrorDetail detail;
  detail.set_reason("NEW_IN_VERSION_9");
  proto.add_details()->PackFrom(detail);
  const absl::Status status = StatusFromProto(proto);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(!GetErrorDetail(status));
  // The wire's code stands, and other details are passed over.
  detail.set_reason("DRAINING");
  proto.add_details()->PackFrom(detail);
  CHECK(StatusFromProto(proto).code() == absl::StatusCode::kResourceExhausted);
  CHECK(GetErrorDetail(StatusFromProto(proto))->reason ==
        ErrorReason::kDraining);
}

}  // namespace
}  // namespace skrull
