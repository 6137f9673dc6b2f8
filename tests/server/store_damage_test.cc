// Files of the SQLite store that cannot be used, in part or at all: a clear
// refusal, never a crash, and never less than was stored without a word.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "skrull/tests/server/sqlite_test_util.h"
#include "skrull/tests/server/store_test_util.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using testing::CheckFilled;
using testing::ContentsOf;
using testing::EpochOf;
using testing::Fill;
using testing::InChild;
using testing::MustOpen;
using testing::OpenRefusal;
using testing::PlanOf;
using testing::ReadAll;
using testing::ReasonOf;
using testing::ReportOf;
using testing::RunSql;
using testing::StoreDir;
using testing::Wanted;
using testing::WriteAll;

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

// A small store whose every page counts, and what it holds.
struct SmallStore {
  SmallStore() {
    const std::unique_ptr<Store> store = MustOpen(dir.uri());
    for (int i = 0; i < 3; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      store->Create(Wanted(name, i), {}).value();
      for (int64_t step = 0; step < 4; ++step) {
        store->Commit(PlanOf(name, 1, step, 0, 500), 9).value();
        CHECK(store->PutReport({name, 1}, ReportOf(step, 0, i), 9).ok());
      }
      store->Advance({name, 1}, EpochOf(1)).value();
    }
    contents = ContentsOf(*store);
  }

  StoreDir dir;
  std::string contents;
};

enum class Outcome { kRefused, kFailed, kSame, kOther };

// Opens the file and reads all of it. A refusal must be the store's own, and
// name the file.
Outcome Read(const StoreDir& dir, const std::string& contents) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(dir.uri());
  absl::Status status = store.status();
  Outcome outcome = Outcome::kRefused;
  if (status.ok()) {
    outcome = Outcome::kFailed;
    try {
      return ContentsOf(**store) == contents ? Outcome::kSame : Outcome::kOther;
    } catch (const absl::BadStatusOrAccess& failed) {
      status = failed.status();
    }
  }
  CHECK(ReasonOf(status) == ErrorReason::kStoreFailed);
  CHECK_THAT(std::string(status.message()), Contains(dir.file()));
  return outcome;
}

constexpr size_t kPage = 4096;

TEST_CASE("SqliteStore: a file that was cut short is refused",
          "[server][store][sqlite]") {
  const SmallStore small;
  const std::string sound = ReadAll(small.dir.file());
  REQUIRE(sound.size() >= 10 * kPage);
  // At every page, and in the middle of each; but for the empty file, which is
  // a new store.
  for (size_t size = kPage / 2; size < sound.size(); size += kPage / 2) {
    CAPTURE(size);
    WriteAll(small.dir.file(), sound.substr(0, size));
    CHECK(Read(small.dir, small.contents) == Outcome::kRefused);
    CHECK(ReadAll(small.dir.file()) == sound.substr(0, size));
  }
  WriteAll(small.dir.file(), sound);
  CHECK(Read(small.dir, small.contents) == Outcome::kSame);
}

TEST_CASE("SqliteStore: a page that was overwritten is refused",
          "[server][store][sqlite]") {
  const SmallStore small;
  const std::string sound = ReadAll(small.dir.file());
  const char garbage = GENERATE('\0', '\xa5');
  for (size_t begin = 0; begin < sound.size(); begin += kPage) {
    CAPTURE(begin);
    std::string damaged = sound;
    std::memset(damaged.data() + begin, garbage, kPage);
    WriteAll(small.dir.file(), damaged);
    CHECK(Read(small.dir, small.contents) == Outcome::kRefused);
  }
}

TEST_CASE("SqliteStore: no flipped byte is taken for another store",
          "[server][store][sqlite]") {
  const SmallStore small;
  const std::string sound = ReadAll(small.dir.file());
  // All of the header, and of each page its header, the first cells' pointers
  // and a walk over the rest.
  std::vector<size_t> places;
  for (size_t i = 0; i < 100; ++i) places.push_back(i);
  for (size_t begin = 0; begin < sound.size(); begin += kPage) {
    const size_t skip = begin == 0 ? 100 : 0;
    for (size_t i = 0; i < 16; ++i) places.push_back(begin + skip + i);
    for (size_t i = 16; i < kPage - skip; i += 211) {
      places.push_back(begin + skip + i);
    }
  }
  std::map<Outcome, int> outcomes;
  for (const size_t place : places) {
    for (const int bits : {0x01, 0xff}) {
      CAPTURE(place, bits);
      std::string damaged = sound;
      damaged[place] = static_cast<char>(damaged[place] ^ bits);
      WriteAll(small.dir.file(), damaged);
      const Outcome outcome = Read(small.dir, small.contents);
      ++outcomes[outcome];
      CHECK(outcome != Outcome::kOther);
    }
  }
  // Each way is taken: the start, a call, and bytes that nothing is kept in.
  CHECK(outcomes[Outcome::kRefused] > 50);
  CHECK(outcomes[Outcome::kFailed] > 50);
  CHECK(outcomes[Outcome::kSame] > 50);
}

TEST_CASE("SqliteStore: a log that was cut or changed is a log that ended",
          "[server][store][sqlite]") {
  StoreDir dir;
  std::unique_ptr<Store> store = MustOpen(dir.uri());
  // What the store held after each transaction: all that it may hold again.
  std::vector<std::string> contents = {ContentsOf(*store)};
  store->Create(Wanted("a", 0), {}).value();
  contents.push_back(ContentsOf(*store));
  for (int64_t step = 0; step < 6; ++step) {
    store->Commit(PlanOf("a", 1, step, 0, 3000), 9).value();
    contents.push_back(ContentsOf(*store));
  }
  store->Advance({"a", 1}, EpochOf(1)).value();
  contents.push_back(ContentsOf(*store));
  const std::string log = ReadAll(dir.file() + "-wal");
  const std::string file = ReadAll(dir.file());
  store.reset();
  constexpr size_t kLogHeader = 32;
  constexpr size_t kFrame = 24 + kPage;
  REQUIRE(log.size() > kLogHeader + 20 * kFrame);

  // Which of `contents` stands with this log; -1: none.
  const auto stands = [&](const std::string& changed) -> ptrdiff_t {
    std::filesystem::remove(dir.file() + "-shm");
    WriteAll(dir.file(), file);
    WriteAll(dir.file() + "-wal", changed);
    const std::string now = ContentsOf(*MustOpen(dir.uri()));
    const auto at = std::find(contents.begin(), contents.end(), now);
    return at == contents.end() ? -1 : at - contents.begin();
  };
  const auto last = static_cast<ptrdiff_t>(contents.size()) - 1;
  CHECK(stands(log) == last);
  ptrdiff_t least = 0;
  for (size_t size = 0; size < log.size(); size += kFrame / 2) {
    CAPTURE(size);
    const ptrdiff_t at = stands(log.substr(0, size));
    CHECK(at >= least);  // the longer the log, the more there is
    CHECK(at < last);
    least = at;
  }
  for (size_t place = 0; place < log.size(); place += 4001) {
    CAPTURE(place);
    std::string changed = log;
    changed[place] = static_cast<char>(changed[place] ^ 0x10);
    CHECK(stands(changed) >= 0);
  }
}

TEST_CASE("SqliteStore: a disk that is full at the start is refused",
          "[server][store][sqlite]") {
  StoreDir dir;
  const bool upgrades = GENERATE(false, true);
  if (upgrades) RunSql(dir.file(), ReadAll(SKRULL_STORE_V1));
  const int code = InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    // No byte of a new file, and less than the log of an upgrade needs.
    const rlim_t bytes = upgrades ? 2 * kPage : 0;
    const rlimit tight = {.rlim_cur = bytes, .rlim_max = bytes};
    if (setrlimit(RLIMIT_FSIZE, &tight) != 0) return 1;
    const absl::Status status = OpenStore(dir.uri()).status();
    return ReasonOf(status) == ErrorReason::kStoreFailed ? 0 : 2;
  });
  CHECK(code == 0);
  const std::unique_ptr<Store> store = MustOpen(dir.uri());
  CHECK(store->Count().value() == (upgrades ? 2 : 0));
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
  JobRecord large_job = Wanted("large", 0);
  (*large_job.spec.mutable_labels())["note"] = std::string(4 << 20, 'x');
  v1::Calibration large_epoch = EpochOf(1);
  large_epoch.set_text(std::string(4 << 20, 'x'));
  const absl::Status commit = store->Commit(large, 5).status();
  const absl::Status again = store->Commit(large, 5).status();
  const absl::Status create = store->Create(large_job, {}).status();
  const absl::Status advance = store->Advance({"run", 2}, large_epoch).status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  signal(SIGXFSZ, old_handler);
  CHECK(ReasonOf(commit) == ErrorReason::kStoreFailed);
  CHECK(ReasonOf(again) == ErrorReason::kStoreFailed);
  CHECK(ReasonOf(create) == ErrorReason::kStoreFailed);
  CHECK(ReasonOf(advance) == ErrorReason::kStoreFailed);
  CHECK(store->Count().value() == 1);
  CHECK(store->Get("run")->calibration.epoch() == 0);
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
