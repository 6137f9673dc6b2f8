#include "skrull/server/trace_context.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace skrull {
namespace {

TEST_CASE("RequestId: short names of plain characters, nothing else",
          "[server][trace]") {
  for (const std::string& good :
       {std::string("a"), std::string("0"), std::string("7f3a-01.B_z"),
        std::string("-"), std::string(64, 'x')}) {
    CAPTURE(good);
    CHECK(IsRequestId(good));
  }
  for (const std::string& bad :
       {std::string(), std::string(65, 'x'), std::string("a b"),
        std::string("a\n"), std::string("a\0b", 3), std::string("a/b"),
        std::string("a=b"), std::string("\"a\""), std::string("é"),
        std::string("a;b")}) {
    CAPTURE(bad);
    CHECK_FALSE(IsRequestId(bad));
  }
}

TEST_CASE("RequestIds: well-formed and never the same", "[server][trace]") {
  RequestIds ids;
  RequestIds others;
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    for (const std::string& id : {ids.Next(), others.Next()}) {
      CAPTURE(id);
      CHECK(IsRequestId(id));
      CHECK(seen.insert(id).second);
    }
  }
}

// The rules and the first example are those of the W3C's recommendation.
TEST_CASE("Traceparent: well-formed ones are read", "[server][trace]") {
  const std::string ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
  const TraceContext wanted{.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                            .span_id = "00f067aa0ba902b7"};
  CHECK(ParseTraceparent("00-" + ids + "-01") == wanted);
  CHECK(ParseTraceparent("00-" + ids + "-00") == wanted);
  CHECK(ParseTraceparent("cc-" + ids + "-01") == wanted);
  CHECK(ParseTraceparent("cc-" + ids + "-01-what the future brings") == wanted);
}

TEST_CASE("Traceparent: malformed ones are not", "[server][trace]") {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string span = "00f067aa0ba902b7";
  const std::string bad = GENERATE_COPY(
      std::string(), "00", "00-" + trace + "-" + span,
      "00-" + trace + "-" + span + "-0", "00-" + trace + "-" + span + "-011",
      "00-" + trace + "-" + span + "-01-more",
      "cc-" + trace + "-" + span + "-01more",
      "ff-" + trace + "-" + span + "-01", "0g-" + trace + "-" + span + "-01",
      "00-" + trace + "-" + span + "-0x", "00_" + trace + "-" + span + "-01",
      "00-" + trace + "_" + span + "-01", "00-" + trace + "-" + span + "_01",
      "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01",
      "00-" + std::string(32, '0') + "-" + span + "-01",
      "00-" + trace + "-" + std::string(16, '0') + "-01",
      "00-" + trace.substr(1) + "\n-" + span + "-01");
  CAPTURE(bad);
  CHECK_FALSE(ParseTraceparent(bad));
}

}  // namespace
}  // namespace skrull
