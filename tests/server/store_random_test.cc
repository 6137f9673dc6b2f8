// Long random runs of the SQLite store, reopened now and then, against the
// memory store as its model.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/server/store.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using testing::ContentsOf;
using testing::EpochOf;
using testing::MustOpen;
using testing::PlanOf;
using testing::ReasonOf;
using testing::ReportOf;
using testing::StoreDir;
using testing::TextOf;
using testing::Wanted;

std::string TextOf(const absl::Status& status) {
  return status.ok() ? "OK"
                     : ErrorReasonName(ReasonOf(status)) + ": " +
                           std::string(status.message());
}

template <typename T>
std::string TextOf(const absl::StatusOr<T>& result) {
  return result.ok() ? TextOf(*result) : TextOf(result.status());
}

TEST_CASE("SqliteStore: random runs answer as the memory store does",
          "[server][store][random]") {
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 engine(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  StoreDir dir;
  const std::unique_ptr<Store> model = MustOpen("memory");
  std::unique_ptr<Store> store = MustOpen(dir.uri());
  for (int i = 0; i < 1500; ++i) {
    CAPTURE(i);
    const std::string name(1, static_cast<char>('a' + pick(0, 3)));
    const int64_t step = pick(0, 11);
    const int32_t attempt = pick(0, 2);
    const int64_t generation = pick(0, 3);
    const int64_t kept = pick(1, 5);
    const int64_t birth = pick(0, 3) == 0 ? pick(1, 20) : 0;
    const auto both = [&](const auto& call) {
      const std::string expected = TextOf(call(*model));
      const std::string actual = TextOf(call(*store));
      REQUIRE(actual == expected);
    };
    const int action = pick(0, 99);
    CAPTURE(action, name, step, attempt, generation, kept);
    if (action < 10) {
      const JobRecord wanted = Wanted(name, pick(0, 1), generation);
      const CreateTerms terms = {.max_jobs = pick(2, 4),
                                 .max_owner_jobs = pick(1, 4),
                                 .any_owner = pick(0, 1) == 1};
      both([&](Store& s) { return s.Create(wanted, terms); });
    } else if (action < 13) {
      both([&](Store& s) { return s.Delete({name, generation}); });
    } else if (action < 20) {
      both([&](Store& s) { return s.Get(name); });
    } else if (action < 25) {
      const int64_t epoch = pick(0, 4);
      both([&](Store& s) {
        return s.Advance({name, generation, birth}, EpochOf(epoch));
      });
    } else if (action < 60) {
      PlanRecord record =
          PlanOf(name, generation, step, attempt,
                 static_cast<size_t>(pick(0, 1) * pick(0, 9000)));
      record.request_digest += std::to_string(pick(0, 1));
      record.birth = birth;
      both([&](Store& s) { return s.Commit(record, kept); });
    } else if (action < 97) {
      const v1::StepReport report =
          ReportOf(step, attempt, pick(0, 3), pick(1, 1000));
      both([&](Store& s) {
        return s.PutReport({name, generation, birth}, report, kept);
      });
    } else {
      store.reset();  // the file is free before it is opened again
      store = MustOpen(dir.uri());
    }
    if (i % 50 == 0) REQUIRE(ContentsOf(*store) == ContentsOf(*model));
  }
  REQUIRE(ContentsOf(*store) == ContentsOf(*model));
}

}  // namespace
}  // namespace skrull
