// Records and scratch files for the stores' tests.
#ifndef SKRULL_TESTS_SERVER_STORE_TEST_UTIL_H_
#define SKRULL_TESTS_SERVER_STORE_TEST_UTIL_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "skrull/planner/error.h"
#include "skrull/server/store.h"

namespace skrull {

// So that Catch2 prints what differs.
std::ostream& operator<<(std::ostream& out, const PlanRecord& record);

}  // namespace skrull

namespace skrull::testing {

// Limit of JobStore::Reports that no test reaches.
inline constexpr int64_t kAllRanks = 1000;

// A directory of its own, removed with all it holds by the destructor.
class StoreDir {
 public:
  StoreDir();
  ~StoreDir();
  StoreDir(const StoreDir&) = delete;
  StoreDir& operator=(const StoreDir&) = delete;

  // Of the database in it.
  std::string file() const { return (path_ / "skrull.db").string(); }
  std::string uri() const { return "sqlite:" + file(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// OpenStore; throws std::runtime_error with the status if it fails.
std::unique_ptr<Store> MustOpen(const std::string& uri);

// The message of OpenStore's refusal; throws if it does not refuse with
// kStoreFailed.
std::string OpenRefusal(const std::string& uri);

// The reason in a status; kUnspecified if it has none, as OK has.
ErrorReason ReasonOf(const absl::Status& status);

// A valid spec; another `variant` is another spec.
v1::JobSpec SpecOf(int variant);

// What JobStore::Create takes; the owner is "owner-0" for an even variant, else
// "owner-1".
JobRecord Wanted(const std::string& name, int variant, int64_t generation = 0);

// A record whose digest and bytes follow from the arguments, zero bytes and
// `padding` of them included.
PlanRecord PlanOf(const std::string& job, int64_t generation, int64_t step,
                  int32_t attempt = 0, size_t padding = 0);

// An epoch that sets some number, which follows from its own.
v1::Calibration EpochOf(int64_t epoch);

v1::StepReport ReportOf(int64_t step, int32_t attempt, int32_t rank,
                        int64_t peak_bytes = 1);

// A line that holds all of a record.
std::string TextOf(const JobRecord& record);
std::string TextOf(const PlanRecord& record);

// Everything a store answers about all jobs, and their steps 0..11 and attempts
// 0..2. Throws absl::BadStatusOrAccess if a call fails.
std::string ContentsOf(Store& store);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_STORE_TEST_UTIL_H_
