// What the SQLite store promises beyond every store: its file.
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "skrull/server/convert.h"
#include "skrull/server/sqlite_schema.h"
#include "skrull/server/store.h"
#include "skrull/server/store_rules.h"
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
using testing::EpochOf;
using testing::kAllRanks;
using testing::MustOpen;
using testing::OpenRefusal;
using testing::PlanOf;
using testing::ReasonOf;
using testing::ReportOf;
using testing::StoreDir;
using testing::Wanted;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Runs SQL on the file with no store in between.
void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  CHECK(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  CHECK(sqlite3_close(db) == SQLITE_OK);
}

// Runs `body` in a child process and returns its exit code, or 128 + signal.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Fill(Store& store) {
  REQUIRE(store.Create(Wanted("run", 1, 2), {}).ok());
  for (int64_t step = 0; step < 20; ++step) {
    REQUIRE(store.Commit(PlanOf("run", 2, step, 0, 3000), 1000).ok());
    REQUIRE(store.PutReport("run", 2, ReportOf(step, 0, 1), 1000).ok());
  }
}

void CheckFilled(Store& store) {
  CHECK(store.Get("run")->generation == 2);
  for (int64_t step = 0; step < 20; ++step) {
    const PlanRecord expected = PlanOf("run", 2, step, 0, 3000);
    CHECK(store.Find(expected.key, 2).value() == expected);
    CHECK(store.Reports(expected.key, 2, kAllRanks)->size() == 1);
  }
}

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
          return store->PutReport("run", 1, ReportOf(1, 0, 0), 10);
        }) == 0);
  CHECK(syncs_of([&] { return store->Commit(PlanOf("run", 1, 2), 10); }) >= 1);
  CHECK(syncs_of([&] { return store->Advance("run", 1, EpochOf(1)); }) >= 1);
  CHECK(syncs_of([&] { return store->Delete("run", 0); }) >= 1);
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
    if (!(*store)->PutReport("run", 1, ReportOf(3, 0, 4), 10).ok()) return 3;
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

TEST_CASE("SqliteStore: a path that is a directory or in none is refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  CHECK_THAT(OpenRefusal("sqlite:" + dir.path().string()),
             Contains(dir.path().string()) && Contains("a directory"));
  CHECK(!std::filesystem::exists(dir.path().string() + "-lock"));
  const std::string lost = (dir.path() / "none" / "skrull.db").string();
  CHECK_THAT(OpenRefusal("sqlite:" + lost),
             Contains(lost) && Contains("No such file or directory"));
  const std::string below = dir.file() + "/skrull.db";
  WriteAll(dir.file(), "a file");
  CHECK_THAT(OpenRefusal("sqlite:" + below),
             Contains(below) && Contains("Not a directory"));
}

TEST_CASE("SqliteStore: a file it may not write is refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  const auto allow = [](const std::string& path, unsigned mode) {
    std::filesystem::permissions(path, std::filesystem::perms{mode});
  };
  // Root may write anything, so the child becomes somebody else.
  const auto refused = [&](const char* problem) {
    const int code = InChild([&] {
      if (geteuid() == 0 && setuid(65534) != 0) return 1;
      const absl::Status status = OpenStore(dir.uri()).status();
      const std::string message(status.message());
      if (ReasonOf(status) != ErrorReason::kStoreFailed) return 2;
      return message.find(problem) == std::string::npos ? 3 : 0;
    });
    CHECK(code == 0);
  };
  allow(dir.path(), 0755);
  allow(dir.file() + "-lock", 0);
  refused("-lock: Permission denied");
  allow(dir.file() + "-lock", 0666);
  allow(dir.file(), 0444);
  refused("not writable");
  allow(dir.file(), 0);
  refused("unable to open database file: Permission denied");
  allow(dir.file(), 0644);
  CheckFilled(*MustOpen(dir.uri()));
}

TEST_CASE("SqliteStore: a file of a newer version is refused and left alone",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  RunSql(dir.file(), "PRAGMA user_version = 3");
  CHECK(kStoreSchemaVersion == 2);
  const std::string before = ReadAll(dir.file());
  CHECK_THAT(OpenRefusal(dir.uri()),
             Contains(dir.file()) && Contains("newer version (schema 3"));
  CHECK(ReadAll(dir.file()) == before);
  RunSql(dir.file(), "PRAGMA user_version = 2");
  CheckFilled(*MustOpen(dir.uri()));
}

// What store_v1.sql was made of: jobs "run" and "idle", and some plans and
// reports of the first. There was a job of id 1, which is gone.
void CheckVersion1(Store& store) {
  const std::vector<JobRecord> jobs = store.List("", 9).value();
  REQUIRE(jobs.size() == 2);
  for (const JobRecord& job : jobs) {
    CAPTURE(job.name);
    const int variant = job.name == "run" ? 1 : 2;
    CHECK(job.generation == 3 - variant);
    CHECK(job.owner.empty());
    CHECK(job.create_time_micros == 1'700'000'000'000'000 + variant);
    CHECK(CanonicalBytes(job.spec) == CanonicalBytes(testing::SpecOf(variant)));
    CHECK(job.birth == variant + 1);
    CHECK(job.version == job.birth);
    CHECK(CanonicalBytes(job.calibration) ==
          CanonicalBytes(RegisteredCalibration()));
    CHECK(store.Calibrations(job.name, job.generation)->size() == 1);
  }
  for (int64_t step = 0; step < 3; ++step) {
    const PlanRecord plan = PlanOf("run", 2, step, 0, 40);
    CHECK(store.Find(plan.key, 2).value() == plan);
    const auto reports = store.Reports(plan.key, 2, kAllRanks).value();
    REQUIRE(reports.size() == 1);
    CHECK(CanonicalBytes(reports[0]) ==
          CanonicalBytes(ReportOf(step, 0, 1, 100 + step)));
  }
  CHECK(store.Find({"run", 1, 1}, 2).value() == PlanOf("run", 2, 1, 1, 40));
  CHECK(store.Reports({"run", 7, 0}, 2, kAllRanks)->size() == 1);
}

TEST_CASE("SqliteStore: a file of version 1 is brought up to this one",
          "[server][store][sqlite]") {
  StoreDir dir;
  RunSql(dir.file(), ReadAll(SKRULL_STORE_V1));
  CheckVersion1(*MustOpen(dir.uri()));
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  CheckVersion1(*store);
  // Its jobs and steps go on where they were, and versions after theirs.
  CHECK(store->LatestSteps("run", 2, 2).value() ==
        std::vector<PlanKey>{{"run", 1, 1}, {"run", 2, 0}});
  CHECK(store->Advance("run", 2, EpochOf(1))->version == 4);
  CHECK(store->Create(Wanted("idle", 2), {})->birth == 3);
  CHECK(store->Create(Wanted("new", 0), {})->birth == 5);
  REQUIRE(store->Commit(PlanOf("run", 2, 3), 2).ok());
  CHECK(!store->Find({"run", 2, 0}, 2).value());
  CHECK(store->Find({"run", 1, 1}, 2).value());
}

TEST_CASE("SqliteStore: an upgrade that fails leaves version 1 as it was",
          "[server][store][sqlite]") {
  StoreDir dir;
  RunSql(dir.file(), ReadAll(SKRULL_STORE_V1));
  // The last table that the upgrade makes is in the way.
  RunSql(dir.file(), "CREATE TABLE last_version(x)");
  CHECK_THAT(OpenRefusal(dir.uri()), Contains("last_version already exists"));
  RunSql(dir.file(), "DROP TABLE last_version");
  CheckVersion1(*MustOpen(dir.uri()));
}

TEST_CASE("SqliteStore: an epoch that is missing is an error, not epoch 0",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  REQUIRE(MustOpen(dir.uri())->Advance("run", 2, EpochOf(1)).ok());
  RunSql(dir.file(), GENERATE("DELETE FROM epochs WHERE epoch = 1",
                              "UPDATE epochs SET calibration = X'' "
                              "WHERE epoch = 1",
                              "UPDATE epochs SET calibration = X'ff' "
                              "WHERE epoch = 1",
                              "UPDATE jobs SET calibration_epoch = 2"));
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  for (const absl::Status& status :
       {store->Get("run").status(), store->List("", 9).status(),
        store->Advance("run", 2, EpochOf(2)).status()}) {
    CHECK(ReasonOf(status) == ErrorReason::kStoreFailed);
    CHECK_THAT(std::string(status.message()), Contains("job \"run\""));
  }
}

TEST_CASE("SqliteStore: another program's database is refused and left alone",
          "[server][store][sqlite]") {
  StoreDir dir;
  RunSql(dir.file(),
         GENERATE("CREATE TABLE jobs(x)", "PRAGMA application_id = 12",
                  "PRAGMA user_version = 1"));
  const std::string before = ReadAll(dir.file());
  CHECK_THAT(OpenRefusal(dir.uri()), Contains("another program"));
  CHECK(ReadAll(dir.file()) == before);
}

TEST_CASE("SqliteStore: a file that is no database is refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  const std::string text =
      GENERATE(std::string(100, 'x'), std::string(8192, '\0'),
               std::string("hidden_size: 4096\n"));
  WriteAll(dir.file(), text);
  CHECK_THAT(OpenRefusal(dir.uri()), Contains(dir.file()));
  CHECK(ReadAll(dir.file()) == text);
}

TEST_CASE("SqliteStore: an empty file becomes a store",
          "[server][store][sqlite]") {
  StoreDir dir;
  WriteAll(dir.file(), "");
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  Fill(*store);
  CheckFilled(*store);
}

TEST_CASE("SqliteStore: damage is refused at the start or in the call",
          "[server][store][sqlite]") {
  StoreDir dir;
  Fill(*MustOpen(dir.uri()));
  const std::string sound = ReadAll(dir.file());
  REQUIRE(sound.size() > 20 * 4096);
  int refused = 0;
  for (size_t page = 0; page < sound.size() / 4096; ++page) {
    CAPTURE(page);
    std::string damaged = sound;
    std::memset(damaged.data() + page * 4096, 0xa5, 4096);
    WriteAll(dir.file(), damaged);
    absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(dir.uri());
    if (!store.ok()) {
      CHECK(ReasonOf(store.status()) == ErrorReason::kStoreFailed);
      CHECK_THAT(std::string(store.status().message()), Contains(dir.file()));
      ++refused;
    } else {
      // Only a plan's own bytes have no redundancy that would show damage.
      CHECK((*store)->Get("run").ok());
    }
  }
  CHECK(refused > 10);
  // Cut short.
  WriteAll(dir.file(), sound.substr(0, sound.size() / 2));
  CHECK_THAT(OpenRefusal(dir.uri()), Contains(dir.file()));
  WriteAll(dir.file(), sound);
  CheckFilled(*MustOpen(dir.uri()));
}

TEST_CASE("SqliteStore: a full disk fails the call and changes nothing",
          "[server][store][sqlite]") {
  StoreDir dir;
  std::unique_ptr<Store> store = MustOpen(dir.uri());
  Fill(*store);
  rlimit old_limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit tight = old_limit;
  tight.rlim_cur = 512 << 10;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const PlanRecord large = PlanOf("run", 2, 100, 0, 4 << 20);
  const absl::Status commit = store->Commit(large, 5).status();
  const absl::Status again = store->Commit(large, 5).status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  signal(SIGXFSZ, old_handler);
  CHECK(ReasonOf(commit) == ErrorReason::kStoreFailed);
  CHECK(ReasonOf(again) == ErrorReason::kStoreFailed);
  CHECK_THAT(std::string(commit.message()), Contains(dir.file()));
  CheckFilled(*store);  // kept_steps 5 pruned nothing either
  CHECK(!store->Find(large.key, 2).value());
  // With space again it works again, and the file is sound.
  REQUIRE(store->Commit(large, 1000).ok());
  store.reset();
  store = MustOpen(dir.uri());
  CheckFilled(*store);
  CHECK((store->Find(large.key, 2).value() == large));
}

}  // namespace
}  // namespace skrull
