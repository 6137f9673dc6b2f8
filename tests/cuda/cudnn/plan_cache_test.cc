// Plans in memory and on disk, with graphs that compute nothing.
#include "skrull/cuda/attention/cudnn/plan_cache.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/attention/cudnn/plan_files.h"
#include "skrull/tests/cuda/cudnn/fake_cudnn.h"

namespace skrull::exec::cudnn::testing {
namespace {

// Gone with all that is in it at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "skrull.XXXXXX";
};

GraphKey KeyWith(int32_t heads) {
  GraphKey key;
  key.q_heads = key.kv_heads = heads;
  key.buckets = {1, 128, 128, 128, 128};
  return key;
}

skrull_cudnn_counters Read(const Events& events) {
  skrull_cudnn_counters counters{};
  events.AddTo(&counters);
  return counters;
}

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("cudnn plan files: what was written is read", "[cudnn]") {
  const TemporaryDirectory directory;
  const PlanFiles files(directory.path() + "/a/b");
  CHECK(!files.Read("x").has_value());
  const std::string binary("\0\n1\xFF", 4);
  for (const std::string& plan : {std::string(), binary, std::string("new")}) {
    REQUIRE(files.Write("x\ny", plan).ok());
    CHECK(files.Read("x\ny") == plan);
  }
  CHECK(!files.Read("x").has_value());
  // Nothing is left beside it.
  CHECK(std::distance(
            std::filesystem::directory_iterator(directory.path() + "/a/b"),
            {}) == 1);
}

TEST_CASE("cudnn plan files: a damaged file is none", "[cudnn]") {
  const TemporaryDirectory directory;
  const PlanFiles files(directory.path());
  REQUIRE(files.Write("name", "some plan").ok());
  const std::string path = files.PathOf("name");
  const std::string good = Slurp(path);
  for (size_t i = 0; i < good.size(); ++i) {
    INFO("byte " << i);
    Spill(path, good.substr(0, i));
    CHECK(!files.Read("name").has_value());
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    Spill(path, bad);
    CHECK(!files.Read("name").has_value());
  }
  Spill(path, good + "x");
  CHECK(!files.Read("name").has_value());
  Spill(path, good);
  CHECK(files.Read("name") == "some plan");
  // Another name with the same hash.
  Spill(files.PathOf("other"), good);
  CHECK(!files.Read("other").has_value());
}

TEST_CASE("cudnn plan files: what cannot be written is named", "[cudnn]") {
  const TemporaryDirectory directory;
  Spill(directory.path() + "/file", "");
  const PlanFiles files(directory.path() + "/file/below");
  const Status status = files.Write("name", "plan");
  CHECK(status.code() == StatusCode::kInternal);
  CHECK_THAT(status.message(), Catch::Contains("/file/below"));
}

TEST_CASE("cudnn plan cache: one build for each key and device", "[cudnn]") {
  FakeCudnn fake;
  Events events([](const std::string&) {});
  PlanCache cache(&fake, "", &events);
  Graph* const one = *cache.Get(fake.device, KeyWith(1));
  CHECK(*cache.Get(fake.device, KeyWith(1)) == one);
  CHECK(*cache.Get(fake.device, KeyWith(2)) != one);
  DeviceInfo second = fake.device;
  second.ordinal = 1;
  CHECK(*cache.Get(second, KeyWith(1)) != one);
  CHECK(fake.built().size() == 3);
  CHECK(Read(events).plans_built == 3);
}

TEST_CASE("cudnn plan cache: threads wait for one build, not for others'",
          "[cudnn]") {
  FakeCudnn fake;
  Events events([](const std::string&) {});
  PlanCache cache(&fake, "", &events);
  std::mutex mutex;
  std::condition_variable changed;
  bool started = false;
  bool released = false;
  fake.on_build = [&](const GraphKey& key) -> Status {
    if (key.q_heads != 1) return {};
    std::unique_lock lock(mutex);
    started = true;
    changed.notify_all();
    changed.wait(lock, [&] { return released; });
    return {};
  };
  std::vector<Graph*> got(4);
  std::vector<std::thread> threads;
  for (Graph*& graph : got) {
    threads.emplace_back([&] { graph = *cache.Get(fake.device, KeyWith(1)); });
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return started; });
  }
  CHECK(cache.Get(fake.device, KeyWith(2)).ok());  // while one is being built
  {
    const std::lock_guard lock(mutex);
    released = true;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  for (const Graph* graph : got) CHECK(graph == got[0]);
  CHECK(fake.built().size() == 2);
}

TEST_CASE("cudnn plan cache: no kernel is final, other failures are not",
          "[cudnn]") {
  FakeCudnn fake;
  Events events([](const std::string&) {});
  PlanCache cache(&fake, "", &events);
  int calls = 0;
  StatusCode code = StatusCode::kOutOfMemory;
  fake.on_build = [&](const GraphKey&) -> Status {
    ++calls;
    return {code, "why"};
  };
  CHECK(cache.Get(fake.device, KeyWith(1)).status() == Status(code, "why"));
  code = StatusCode::kPlanBuildFailed;
  for (int i = 0; i < 3; ++i) {
    CHECK(cache.Get(fake.device, KeyWith(1)).status() == Status(code, "why"));
  }
  CHECK(calls == 2);
}

TEST_CASE("cudnn plan cache: the next process loads", "[cudnn]") {
  const TemporaryDirectory directory;
  FakeCudnn fake;
  std::vector<std::string> lines;
  Events events([&](const std::string& line) { lines.push_back(line); });
  const auto get = [&] {
    PlanCache cache(&fake, directory.path(), &events);
    return cache.Get(fake.device, KeyWith(1)).ok();
  };
  CHECK((get() && get()));
  CHECK((fake.built().size() == 1 && fake.loads() == 1));
  // Another device or cuDNN has plans of its own.
  fake.device.fingerprint = "another";
  CHECK((get() && get()));
  CHECK((fake.built().size() == 2 && fake.loads() == 2));
  CHECK(lines.empty());
  CHECK(Read(events).plans_loaded == 2);

  // What cuDNN does not read is built anew, and replaced.
  const PlanFiles files(directory.path());
  const std::string name = "another\n" + ToText(KeyWith(1));
  REQUIRE(files.Write(name, "from elsewhere").ok());
  CHECK((get() && get()));
  CHECK((fake.built().size() == 3 && fake.loads() == 3));
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::Contains(files.PathOf(name)) &&
                           Catch::Contains("these bytes are no plan"));
}

TEST_CASE("cudnn plan cache: works without its directory", "[cudnn]") {
  const TemporaryDirectory directory;
  Spill(directory.path() + "/file", "");
  FakeCudnn fake;
  std::vector<std::string> lines;
  Events events([&](const std::string& line) { lines.push_back(line); });
  PlanCache cache(&fake, directory.path() + "/file", &events);
  CHECK(cache.Get(fake.device, KeyWith(1)).ok());
  CHECK(cache.Get(fake.device, KeyWith(2)).ok());
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::Contains("keeps no plan on disk"));
}

}  // namespace skrull::exec::cudnn::testing
