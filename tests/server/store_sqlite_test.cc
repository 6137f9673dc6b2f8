// What the SQLite store promises beyond every store: its file.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "skrull/server/store.h"
#include "skrull/tests/server/sqlite_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace {

std::atomic<int> sync_count = 0;

}  // namespace

// SQLite syncs through these; being the program's own, they come before the C
// library's.
extern "C" int fsync(int file) {
  ++sync_count;
  return static_cast<int>(syscall(SYS_fsync, file));
}
extern "C" int fdatasync(int file) {
  ++sync_count;
  return static_cast<int>(syscall(SYS_fdatasync, file));
}

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::CheckFilled;
using testing::EpochOf;
using testing::Fill;
using testing::InChild;
using testing::kAllRanks;
using testing::MustOpen;
using testing::OpenRefusal;
using testing::PlanOf;
using testing::ReportOf;
using testing::RunSql;
using testing::StoreDir;
using testing::Wanted;

TEST_CASE("SqliteStore: what was stored is there after reopening",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  CheckFilled(*store);
  // Pruning goes on where it was.
  REQUIRE(store->Commit(PlanOf("run", 2, 20), 20).ok());
  CHECK(!store->Find({"run", 0, 0}, 2).value());
  CHECK(store->Find({"run", 1, 0}, 2).value());
}

TEST_CASE("SqliteStore: a relative path is a file in the working directory",
          "[server][store][sqlite]") {
  StoreDir dir;
  const int code = InChild([&] {
    if (chdir(dir.path().c_str()) != 0) return 1;
    return OpenStore("sqlite::memory:").ok() ? 0 : 2;
  });
  CHECK(code == 0);
  CHECK(std::filesystem::exists(dir.path() / ":memory:"));
}

TEST_CASE("SqliteStore: jobs and plans are synced before the call returns",
          "[server][store][sqlite]") {
  StoreDir dir;
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  const auto syncs_of = [&](const auto& call) {
    const int before = sync_count;
    REQUIRE(call().ok());
    return sync_count - before;
  };
  const auto commit = [&] { return store->Commit(PlanOf("run", 1, 1), 10); };
  CHECK(syncs_of([&] { return store->Create(Wanted("run", 0), {}); }) >= 1);
  CHECK(syncs_of(commit) >= 1);
  CHECK(syncs_of(commit) == 0);  // stands already
  CHECK(syncs_of([&] { return store->Find({"run", 1, 0}, 1); }) == 0);
  CHECK(syncs_of([&] {
          return store->PutReport({"run", 1}, ReportOf(1, 0, 0), 10);
        }) == 0);
  CHECK(syncs_of([&] { return store->Commit(PlanOf("run", 1, 2), 10); }) >= 1);
  CHECK(syncs_of([&] { return store->Advance({"run", 1}, EpochOf(1)); }) >= 1);
  CHECK(syncs_of([&] { return store->Delete({"run"}); }) >= 1);
}

// The child commits plans as fast as it can and writes each step to `out` once
// its commit was acknowledged; never returns.
[[noreturn]] void CommitForEver(const std::string& uri, int out) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(uri);
  if (!store.ok()) _exit(1);
  const absl::StatusOr<JobRecord> job = (*store)->Create(Wanted("run", 0), {});
  if (!job.ok()) _exit(2);
  int64_t step = 0;
  while ((*store)->Find({"run", step, 0}, 1).value()) ++step;
  for (;; ++step) {
    const auto padding = static_cast<size_t>(step * 977 % 20000);
    if (!(*store)->Commit(PlanOf("run", 1, step, 0, padding), 100000).ok()) {
      _exit(3);
    }
    if (write(out, &step, sizeof(step)) != sizeof(step)) _exit(4);
  }
}

TEST_CASE("SqliteStore: kill -9 loses no acknowledged commit",
          "[server][store][sqlite]") {
  StoreDir dir;
  int64_t acknowledged = -1;
  // Each round goes on with the file that the killed one left.
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      CommitForEver(dir.uri(), ends[1]);
    }
    close(ends[1]);
    // Dies in the middle of whatever follows its so many commits.
    const int64_t enough = acknowledged + 20 + 37 * round;
    int64_t step = 0;
    bool killed = false;
    while (read(ends[0], &step, sizeof(step)) == sizeof(step)) {
      acknowledged = step;
      if (!killed && step >= enough) killed = kill(pid, SIGKILL) == 0;
    }
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGKILL);

    const std::unique_ptr<Store> store = MustOpen(dir.uri());
    for (int64_t i = 0; i <= acknowledged; ++i) {
      const auto padding = static_cast<size_t>(i * 977 % 20000);
      const PlanRecord expected = PlanOf("run", 1, i, 0, padding);
      const auto found = store->Find(expected.key, 1);
      REQUIRE(found.ok());
      REQUIRE((*found == expected));
    }
  }
}

TEST_CASE("SqliteStore: reports survive kill -9", "[server][store][sqlite]") {
  StoreDir dir;
  const int code = InChild([&] {
    const auto store = OpenStore(dir.uri());
    if (!store.ok()) return 1;
    if (!(*store)->Create(Wanted("run", 0), {}).ok()) return 2;
    if (!(*store)->PutReport({"run", 1}, ReportOf(3, 0, 4), 10).ok()) return 3;
    return kill(getpid(), SIGKILL);
  });
  CHECK(code == 128 + SIGKILL);
  CHECK(MustOpen(dir.uri())->Reports({"run", 3, 0}, 1, kAllRanks)->size() == 1);
}

TEST_CASE("SqliteStore: a second daemon is refused while one holds the file",
          "[server][store][sqlite]") {
  StoreDir dir;
  std::unique_ptr<Store> first = MustOpen(dir.uri());
  CHECK_THAT(OpenRefusal(dir.uri()),
             Contains(dir.file()) && Contains("another daemon holds it"));
  CHECK(InChild([&] { return OpenStore(dir.uri()).ok() ? 0 : 9; }) == 9);
  // By any name.
  const std::filesystem::path link = dir.path() / "link.db";
  std::filesystem::create_symlink(dir.file(), link);
  CHECK_THAT(OpenRefusal("sqlite:" + link.string()),
             Contains("another daemon holds it"));
  Fill(*first);
  CheckFilled(*first);
  first.reset();
  CheckFilled(*MustOpen("sqlite:" + link.string()));
}

TEST_CASE("SqliteStore: tools may read and back up while a daemon runs",
          "[server][store][sqlite]") {
  StoreDir dir;
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  Fill(*store);
  const std::string copy = (dir.path() / "copy.db").string();
  RunSql(dir.file(), "VACUUM INTO '" + copy + "'");
  REQUIRE(store->Commit(PlanOf("run", 2, 20), 1000).ok());
  CheckFilled(*MustOpen("sqlite:" + copy));
}

}  // namespace
}  // namespace skrull
