#include "skrull/server/auth/watched_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "skrull/planner/error.h"
#include "skrull/tests/support/certificates.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;
using Contents = std::vector<std::string>;
using testing::ReplaceFile;
using testing::TempDir;

void Write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Two files, and what was handed over of them.
struct Fixture {
  Fixture() {
    Write(a, "a1");
    Write(b, "b1");
  }

  TempDir directory;
  const std::filesystem::path a = directory.path() / "a";
  const std::filesystem::path b = directory.path() / "b";
  std::vector<Contents> used;
  absl::Status verdict;
  WatchedFiles files{{a.string(), b.string()},
                     [this](const Contents& contents) {
                       used.push_back(contents);
                       return verdict;
                     }};
};

TEST_CASE("WatchedFiles: a change is handed over once, when it stands still",
          "[server][auth]") {
  Fixture f;
  REQUIRE(f.files.Load().ok());
  CHECK(f.used == std::vector<Contents>{{"a1", "b1"}});
  CHECK_FALSE(f.files.Poll().has_value());
  CHECK_FALSE(f.files.Poll().has_value());

  Write(f.a, "a2");
  CHECK_FALSE(f.files.Poll().has_value());  // may be half written
  ReplaceFile(f.b, "b2");                   // a second writer
  CHECK_FALSE(f.files.Poll().has_value());
  REQUIRE(f.used.size() == 1);
  const auto loaded = f.files.Poll();
  REQUIRE(loaded.has_value());
  CHECK(loaded->ok());
  CHECK(f.used.back() == Contents{"a2", "b2"});
  CHECK_FALSE(f.files.Poll().has_value());
  CHECK(f.used.size() == 2);
}

TEST_CASE("WatchedFiles: a change back and a switched link are changes",
          "[server][auth]") {
  Fixture f;
  namespace fs = std::filesystem;
  fs::create_directory(f.directory.path() / "one");
  fs::create_directory(f.directory.path() / "two");
  Write(f.directory.path() / "one" / "t", "same");
  Write(f.directory.path() / "two" / "t", "else");
  const fs::path link = f.directory.path() / "current";
  fs::create_directory_symlink("one", link);
  WatchedFiles files({(link / "t").string()}, [&](const Contents& contents) {
    f.used.push_back(contents);
    return absl::OkStatus();
  });
  REQUIRE(files.Load().ok());
  fs::create_directory_symlink("two", f.directory.path() / "next");
  fs::rename(f.directory.path() / "next", link);
  CHECK_FALSE(files.Poll().has_value());
  CHECK(files.Poll().has_value());
  CHECK(f.used.back() == Contents{"else"});
}

TEST_CASE("WatchedFiles: what cannot be used is told once, until it changes",
          "[server][auth]") {
  Fixture f;
  REQUIRE(f.files.Load().ok());
  f.verdict = absl::InvalidArgumentError("wrong");
  Write(f.a, "a2");
  f.files.Poll();
  CHECK(f.files.Poll() == f.verdict);
  CHECK_FALSE(f.files.Poll().has_value());
  CHECK_FALSE(f.files.Poll().has_value());

  std::filesystem::remove(f.a);
  CHECK_FALSE(f.files.Poll().has_value());
  const auto missing = f.files.Poll();
  REQUIRE(missing.has_value());
  CHECK_THAT(std::string(missing->message()),
             Contains(f.a.string()) && Contains("No such file"));
  CHECK_FALSE(f.files.Poll().has_value());

  f.verdict = absl::OkStatus();
  Write(f.a, "a3");
  f.files.Poll();
  CHECK(f.files.Poll() == absl::OkStatus());
  CHECK(f.used.back() == Contents{"a3", "b1"});
}

TEST_CASE("WatchedFiles: a first load names the file that cannot be read",
          "[server][auth]") {
  TempDir directory;
  const auto refused = [&](const std::string& name, const std::string& why) {
    CAPTURE(name);
    const std::string path = (directory.path() / name).string();
    WatchedFiles files({path},
                       [](const Contents&) { return absl::OkStatus(); });
    const absl::Status status = files.Load();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Contains(path) && Contains(why));
  };
  refused("missing", "No such file");
  refused(".", "Is a directory");
  const std::filesystem::path big = directory.path() / "big";
  Write(big, "x");
  std::filesystem::resize_file(big, WatchedFiles::kMaxFileBytes + 1);
  refused("big", "more than");
  std::filesystem::resize_file(big, WatchedFiles::kMaxFileBytes);
  WatchedFiles files({big.string()},
                     [](const Contents&) { return absl::OkStatus(); });
  CHECK(files.Load().ok());
}

}  // namespace
}  // namespace skrull
