#include "skrull/client/digest_agreement.h"

#include <barrier>
#include <catch2/catch.hpp>
#include <thread>

#include "skrull/client/refusal.h"

namespace skrull {
namespace {

std::string Digest(char digit) { return std::string(64, digit); }

// What AgreeOnDigest returns on each of as many ranks as digests, each a thread
// with an all-gather that waits for all of them: a rank that stayed away would
// hang the test.
std::vector<absl::Status> Agree(const std::vector<std::string>& digests) {
  const size_t ranks = digests.size();
  std::vector<DigestBytes> gathered(ranks);
  std::vector<absl::Status> results(ranks);
  std::barrier<> all(static_cast<std::ptrdiff_t>(ranks));
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] =
          AgreeOnDigest(digests[rank],
                        [&](const DigestBytes& mine)
                            -> absl::StatusOr<std::vector<DigestBytes>> {
                          gathered[rank] = mine;
                          all.arrive_and_wait();
                          return gathered;
                        });
    });
  }
  threads.clear();
  return results;
}

TEST_CASE("AgreeOnDigest: equal digests agree, in either case", "[client]") {
  for (const absl::Status& status :
       Agree({Digest('a'), Digest('A'), Digest('a')})) {
    CHECK(status.ok());
  }
  CHECK(Agree({Digest('7')})[0].ok());
}

TEST_CASE("AgreeOnDigest: every rank raises and names those that differ",
          "[client]") {
  const auto results =
      Agree({Digest('1'), Digest('2'), Digest('1'), Digest('1'), Digest('3')});
  for (const absl::Status& status : results) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status == results[0]);
    CHECK_THAT(std::string(status.message()), Catch::Contains("rank 1, 4"));
    REQUIRE(GetRefusalDetail(status));
    CHECK(GetRefusalDetail(status)->reason == "DIGEST_MISMATCH");
    CHECK(GetRefusalDetail(status)->indices == std::vector<int64_t>{1, 4});
  }
}

TEST_CASE("AgreeOnDigest: of two halves the one with rank 0 is right",
          "[client]") {
  for (const absl::Status& status : Agree({Digest('2'), Digest('1')})) {
    REQUIRE(GetRefusalDetail(status));
    CHECK(GetRefusalDetail(status)->indices == std::vector<int64_t>{1});
  }
}

TEST_CASE("AgreeOnDigest: a rank without a plan stops all", "[client]") {
  for (const char* none : {"", "abc", "not hexadecimal"}) {
    for (const absl::Status& status : Agree({Digest('1'), none, Digest('1')})) {
      CHECK(absl::IsFailedPrecondition(status));
      CHECK(GetRefusalDetail(status)->indices == std::vector<int64_t>{1});
    }
  }
  for (const absl::Status& status : Agree({"", ""})) {
    CHECK(absl::IsInvalidArgument(status));
  }
  CHECK(absl::IsInvalidArgument(Agree({Digest('0')})[0]));
}

TEST_CASE("AgreeOnDigest: lists at most 32 ranks and counts all", "[client]") {
  std::vector<std::string> digests(100, Digest('1'));
  for (size_t rank = 60; rank < 100; ++rank) digests[rank] = Digest('2');
  const absl::Status status = Agree(digests)[99];
  CHECK_THAT(std::string(status.message()), Catch::Contains("40 of 100"));
  CHECK(GetRefusalDetail(status)->indices.size() == 32);
}

TEST_CASE("AgreeOnDigest: passes the all-gather's failure on", "[client]") {
  int calls = 0;
  const absl::Status status = AgreeOnDigest(
      Digest('1'),
      [&](const DigestBytes&) -> absl::StatusOr<std::vector<DigestBytes>> {
        ++calls;
        return absl::AbortedError("a rank left");
      });
  CHECK(absl::IsAborted(status));
  CHECK(calls == 1);
  CHECK(absl::IsInternal(AgreeOnDigest(Digest('1'), [](const DigestBytes&) {
    return absl::StatusOr<std::vector<DigestBytes>>(std::vector<DigestBytes>());
  })));
}

}  // namespace
}  // namespace skrull
