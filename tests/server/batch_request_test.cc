#include "skrull/server/batch_request.h"

#include <catch2/catch.hpp>
#include <string>

namespace skrull {
namespace {

std::string FirstBytes(const v1::PlanBatchRequest& request) {
  return request.SerializeAsString().substr(0, kJobPeekBytes);
}

TEST_CASE("BatchRequest: the job is read off the first bytes",
          "[server][batch_request]") {
  v1::PlanBatchRequest request;
  CHECK(PeekJob(FirstBytes(request)).empty());
  request.set_step(7);
  for (int i = 0; i < 1000; ++i) request.add_lengths(1 << i % 31);
  CHECK(PeekJob(FirstBytes(request)).empty());
  for (const size_t size : {1U, 2U, 127U, 128U}) {
    const std::string name(size, 'x');
    request.set_job(name);
    CHECK(PeekJob(FirstBytes(request)) == name);
  }
  // Longer than a name may be, and than the bytes.
  request.set_job(std::string(300, 'x'));
  CHECK(PeekJob(FirstBytes(request)).empty());
  request.clear_job();
  request.mutable_job_spec()->mutable_model()->set_hidden_size(64);
  CHECK(PeekJob(FirstBytes(request)).empty());
}

TEST_CASE("BatchRequest: any bytes at all may come",
          "[server][batch_request]") {
  CHECK(PeekJob("").empty());
  CHECK(PeekJob("\x0a").empty());
  CHECK(PeekJob("\x0a\x01").empty());
  CHECK(PeekJob("\x0a\x01z") == "z");
  CHECK(PeekJob("\x0a\x81").empty());
  CHECK(PeekJob("\x0a\xff\xff\xff\xff").empty());
  CHECK(PeekJob(std::string("\x0a\x03"
                            "a\0b",
                            5)) == std::string("a\0b", 3));
}

}  // namespace
}  // namespace skrull
