// skrullctl debug-bundle: what is in it, what is not, and without a daemon.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "skrull/tests/client/fake_planner.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using nlohmann::json;
using testing::CliResult;
using testing::Daemon;
using testing::ExampleJob;
using testing::FakePlanner;
using testing::Lines;
using testing::RunCli;
using testing::RunProgram;

// The bundle at `path`, unpacked.
class Unpacked {
 public:
  explicit Unpacked(const std::string& path) {
    const CliResult tar =
        RunProgram({"/bin/tar", "-xzf", path, "-C", directory_.path()});
    INFO(tar.err);
    REQUIRE(tar.exit_code == 0);
  }

  std::string Read(const std::string& name) const {
    return testing::ReadFile(directory_.path() / "skrull-debug" / name);
  }
  json ReadJson(const std::string& name) const {
    return json::parse(Read(name));
  }
  // Paths of its files.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    const auto top = directory_.path() / "skrull-debug";
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(top)) {
      if (entry.is_regular_file()) {
        names.insert(std::filesystem::relative(entry.path(), top));
      }
    }
    return names;
  }
  std::string ReadAll() const {
    std::string all;
    for (const std::string& name : Names()) all += Read(name);
    return all;
  }
  // Every file but the manifest is in it, with its size and SHA-256.
  void CheckManifest() const {
    const json manifest = ReadJson("manifest.json");
    std::set<std::string> names = {"manifest.json"};
    for (const json& file : manifest["files"]) {
      const std::string name = file["name"];
      INFO(name);
      names.insert(name);
      CHECK(file["bytes"] == Read(name).size());
      const CliResult sum = RunProgram({"/usr/bin/sha256sum"}, Read(name));
      CHECK(sum.out.substr(0, 64) == file["sha256"].get<std::string>());
    }
    CHECK(names == Names());
  }

 private:
  testing::TempDir directory_;
};

TEST_CASE("skrullctl debug-bundle: a real daemon's", "[cli][bundle]") {
  Daemon daemon;
  const testing::TempDir directory;
  const std::string out = directory.path() / "debug.tar.gz";
  const std::string spec = testing::ReadFile(ExampleJob("qwen2.5-0.5b")) +
                           "\nlabels { key: \"wandb\" value: \"hunter2\" }\n";
  REQUIRE(RunCli({"job", "create", "run7", "--job-spec", "-", "--server",
                  daemon.address()},
                 spec)
              .exit_code == 0);
  REQUIRE(RunCli({"plan", "--job", "run7", "--lengths", "-", "--server",
                  daemon.address()},
                 "100\n200\n")
              .exit_code == 0);
  const CliResult result =
      RunCli({"debug-bundle", "--server", daemon.address(), "--metrics",
              daemon.metrics_address(), "--out", out},
             "",
             {{"SKRULL_TOKEN", "hunter2"},
              {"HTTPS_PROXY", "http://me:hunter2@proxy"},
              {"AWS_SECRET_ACCESS_KEY", "hunter2"},
              {"GRPC_VERBOSITY", "ERROR"}});
  INFO(result.err);
  CHECK(result.exit_code <= 1);

  const Unpacked bundle(out);
  bundle.CheckManifest();
  CHECK_THAT(bundle.Read("metrics.txt"), Catch::Contains("skrull_build_info"));
  CHECK(bundle.ReadJson("jobs.json")[0]["name"] == "run7");
  const json job = bundle.ReadJson("jobs/run7.json");
  CHECK(job["name"] == "run7");
  CHECK(job["spec"]["labels"]["wandb"] == "(left out)");
  const json client = bundle.ReadJson("client.json");
  CHECK(client["environment"]["SKRULL_TOKEN"] == "(set; value left out)");
  CHECK(client["environment"]["HTTPS_PROXY"] == "(set; value left out)");
  CHECK(client["environment"]["GRPC_VERBOSITY"] == "ERROR");
  CHECK_FALSE(client["environment"].contains("AWS_SECRET_ACCESS_KEY"));
  CHECK(bundle.ReadAll().find("hunter2") == std::string::npos);
  struct stat info = {};
  REQUIRE(::stat(out.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  // Whatever is missing is named to the user as in the manifest.
  const json manifest = bundle.ReadJson("manifest.json");
  for (const json& error : manifest["errors"]) {
    CHECK_THAT(result.err, Catch::Contains(error["what"].get<std::string>()));
  }
}

TEST_CASE("skrullctl debug-bundle: status, calibrations and plans",
          "[cli][bundle]") {
  FakePlanner planner;
  planner.list_jobs = [](const auto&, v1::ListJobsResponse* response) {
    response->add_jobs()->set_name("run7");
    response->add_jobs()->set_name("other");
    response->add_jobs()->set_name("../../etc/passwd");
    return grpc::Status::OK;
  };
  planner.get_job = [](v1::Job* job) {
    job->set_owner("ann");
    return grpc::Status::OK;
  };
  planner.get_status = [](const auto&, v1::ServerStatus* status) {
    status->set_version("9.8.7");
    for (const char* job : {"run7", "", "../x", "other", "run7"}) {
      status->add_plans()->set_job(job);
      status->mutable_plans()->rbegin()->set_step(12);
    }
    return grpc::Status::OK;
  };
  planner.list_calibrations = [](const auto& request, auto* response) {
    response->add_calibrations()->set_text("for " + request.job());
    return grpc::Status::OK;
  };
  planner.get_rank_plan = [](const auto& request, v1::RankPlan* plan) {
    plan->set_job(request.job());
    plan->set_step(request.step());
    return grpc::Status::OK;
  };
  const testing::TempDir directory;
  const std::string out = directory.path() / "debug.tar.gz";
  const std::vector<std::string> command = {
      "debug-bundle", "--server", planner.address(), "--metrics", "none",
      "--out",        out};
  const CliResult all = RunCli(command);
  CHECK(all.exit_code == 1);  // one name is none
  CHECK_THAT(all.err, Catch::Contains("../../etc/passwd"));
  {
    const Unpacked bundle(out);
    bundle.CheckManifest();
    CHECK(bundle.Names() ==
          std::set<std::string>{
              "calibrations/other.json", "calibrations/run7.json",
              "client.json", "jobs.json", "jobs/other.json", "jobs/run7.json",
              "manifest.json", "plans/other-step12-attempt0-rank0.json",
              "plans/run7-step12-attempt0-rank0.json", "status.json"});
    CHECK(bundle.ReadJson("status.json")["version"] == "9.8.7");
    CHECK(bundle.ReadJson("jobs/run7.json")["owner"] == "ann");
    CHECK(
        bundle.ReadJson("calibrations/run7.json")["calibrations"][0]["text"] ==
        "for run7");
    CHECK(bundle.ReadJson("plans/run7-step12-attempt0-rank0.json")["step"] ==
          "12");
  }
  std::vector<std::string> one = command;
  one.insert(one.end(), {"--job", "run7"});
  CHECK(RunCli(one).exit_code == 0);
  const Unpacked bundle(out);
  CHECK(bundle.Names() ==
        std::set<std::string>{"calibrations/run7.json", "client.json",
                              "jobs/run7.json", "manifest.json",
                              "plans/run7-step12-attempt0-rank0.json",
                              "status.json"});
}

TEST_CASE("skrullctl debug-bundle: without a daemon it holds the errors",
          "[cli][bundle]") {
  const testing::TempDir directory;
  const std::string out = directory.path() / "debug.tar.gz";
  const CliResult result =
      RunCli({"debug-bundle", "--server", "127.0.0.1:1", "--metrics",
              "127.0.0.1:1", "--timeout", "1", "--out", out});
  CHECK(result.exit_code == 1);
  const Unpacked bundle(out);
  bundle.CheckManifest();
  CHECK(bundle.Names() ==
        std::set<std::string>{"client.json", "manifest.json"});
  const json manifest = bundle.ReadJson("manifest.json");
  CHECK(manifest["server"] == "127.0.0.1:1");
  std::set<std::string> missing;
  for (const json& error : manifest["errors"]) {
    CHECK(error["code"] == "UNAVAILABLE");
    missing.insert(error["what"]);
  }
  CHECK(missing == std::set<std::string>{"jobs.json", "metrics.txt", "plans/",
                                         "status.json"});

  const CliResult nowhere =
      RunCli({"debug-bundle", "--server", "127.0.0.1:1", "--timeout", "1",
              "--out", directory.path() / "no/such/folder.tar.gz"});
  CHECK(nowhere.exit_code == 2);
  CHECK_THAT(nowhere.err, Catch::Contains("no/such/folder.tar.gz"));
  CHECK(RunCli({"debug-bundle"}).exit_code == 2);
}

}  // namespace
}  // namespace skrull
