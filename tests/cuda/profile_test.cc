// skrull-profile: the program from end to end.
#include "skrull/cuda/profile/profile.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "skrull/cuda/profile/compute_measure.h"
#include "skrull/tests/cuda/profile_plans.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::profile {
namespace {

using skrull::testing::Daemon;
using skrull::testing::Process;
using skrull::testing::TempDir;

std::vector<std::string> ModelFlags() {
  return {"--hidden-size=64",  "--layer-count=2", "--attention-head-count=4",
          "--kv-head-count=2", "--head-dim=16",   "--intermediate-size=128",
          "--vocab-size=128"};
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ran {
  int code = 0;
  std::string fragment;  // its standard output
  std::string said;      // its standard error output
};

// Through a shell, which tells the two outputs apart.
Ran Run(const std::vector<std::string>& flags, bool with_model = true) {
  const TempDir directory;
  const std::string out = (directory.path() / "out").string();
  const std::string error = (directory.path() / "error").string();
  std::vector<std::string> argv = {
      "/bin/sh",
      "-c",
      "out=$1; error=$2; shift 2; \"$@\" >\"$out\" 2>\"$error\"",
      "sh",
      out,
      error,
      SKRULL_PROFILE_PATH};
  if (with_model) {
    for (const std::string& flag : ModelFlags()) argv.push_back(flag);
  }
  argv.insert(argv.end(), flags.begin(), flags.end());
  Process process(argv);
  Ran ran;
  ran.code = process.Wait();
  ran.fragment = ReadFile(out);
  ran.said = ReadFile(error);
  return ran;
}

std::vector<std::string> Quick(std::vector<std::string> flags) {
  flags.insert(flags.end(),
               {"--min-tokens=16", "--max-tokens=128", "--degrees=2,4",
                "--clock=cpu", "--samples=3", "--warm-ups=1",
                "--max-link-bytes=4194304", "--bucket-size-tokens=1024"});
  return flags;
}

}  // namespace

TEST_CASE("skrull-profile: measures the cpu, and its fragment is planned with",
          "[profile]") {
  // An error of 1 is that of predicting nothing: how well the fit is on a
  // machine that builds other things at the same time is not tested.
  for (const bool table : {false, true}) {
    const Ran ran =
        Run(Quick({"--max-error=1",
                   table ? "--communicator=host" : "--communicator=in_process",
                   table ? "--link=table" : "--link=constants", "--ranks=3",
                   table ? "--recompute" : "--deterministic"}));
    INFO(ran.said << ran.fragment);
    REQUIRE(ran.code == 0);
    CHECK_THAT(ran.said,
               Catch::Contains("128 / 4") && Catch::Contains("TFLOP/s") &&
                   Catch::Contains("mean error") && Catch::Contains("4194304"));
    CHECK_THAT(
        ran.fragment,
        Catch::Contains("# measured on device cpu") &&
            Catch::Contains(table ? "pass_multiplier: 4\n"
                                  : "pass_multiplier: 3\n") &&
            Catch::Contains(table ? "table { bytes: " : "seconds_per_byte: "));
    const PlanResult plan = PlanWith(ran.fragment, {1000, 64, 64, 300, 2000});
    CHECK(plan.figures.predicted_seconds > 0);
  }
}

TEST_CASE("skrull-profile: a fit that is refused writes nothing", "[profile]") {
  const Ran ran = Run(Quick({"--max-error=0"}));
  INFO(ran.said);
  CHECK(ran.code == 1);
  CHECK(ran.fragment.empty());
  CHECK_THAT(ran.said, Catch::Contains("computing: the mean error is") &&
                           Catch::Contains("worst is") &&
                           Catch::Contains("refused"));
  // All lengths are 64, whole.
  const Ran same =
      Run({"--min-tokens=64", "--max-tokens=64", "--degrees=2", "--samples=1"});
  INFO(same.said);
  CHECK(same.code == 1);
  CHECK(same.fragment.empty());
  CHECK_THAT(same.said, Catch::Contains("points for 3 coefficients"));
}

TEST_CASE("skrull-profile: says what is missing", "[profile]") {
  const auto fails = [](std::vector<std::string> flags, int code,
                        const std::string& text) {
    const Ran ran = Run(flags);
    INFO(ran.said);
    CHECK(ran.code == code);
    CHECK(ran.fragment.empty());
    CHECK_THAT(ran.said, Catch::Contains(text));
  };
  fails({"--device=cuda", "--plugin-dir=/nowhere"}, 1,
        "libskrull_device_cuda.so");
  fails({"--backend=nosuch", "--plugin-dir=/nowhere"}, 1,
        "libskrull_backend_nosuch.so");
  fails({"--dtype=bfloat16"}, 1, "matrix products on the cpu are float32");
  fails({"--min-tokens=100", "--max-tokens=50"}, 1,
        "lengths from 100 to 50 tokens");
  fails({"--from-log=/nowhere/steps"}, 1, "/nowhere/steps cannot be read");
  fails({"--communicator=pigeons"}, 2, "--communicator");
  fails({"--clock=sun"}, 2, "--clock");
  const Ran usage = Run({}, false);
  CHECK(usage.code == 2);
  CHECK_THAT(usage.said, Catch::Contains("--hidden-size"));
  CHECK(Run({"--help"}, false).code == 0);
}

TEST_CASE("skrull-profile --from-log: finds what made the log", "[profile]") {
  const TempDir directory;
  const std::string path = (directory.path() / "steps.jsonl").string();
  const CostForm form = CostForm::Of(false, 4);
  std::ofstream log(path);
  int32_t index = 0;
  for (const ComputeCase& c : ComputeCases(16, 2048, std::vector{2, 4})) {
    const Unknowns compute = ComputeTerms(kTrainerModel, form, c.shares);
    const Unknowns exchange = ExchangeTerms(kTrainerModel, form, c.shares);
    LogRecord record;
    record.micro_batch = index++;
    record.measured.shares = c.shares;
    record.measured.compute_seconds =
        2e-10 * compute[0] + 2e-10 * 60 * compute[1] + 4e-4;
    record.measured.exchange_seconds = 2e-5 * exchange[0] + 1e-9 * exchange[1];
    int64_t rows = 0;
    for (const Share& share : c.shares) rows += share.tokens / share.degree;
    record.measured.peak_bytes = 5'000'000 + 3000 * rows;
    log << ToLine(record) << '\n';
  }
  log.close();
  const Ran ran =
      Run({"--from-log=" + path, "--dtype=float32", "--device-bytes=10000000"});
  INFO(ran.said << ran.fragment);
  REQUIRE(ran.code == 0);
  const auto number = [&](const std::string& name) {
    const size_t at = ran.fragment.find("  " + name + ": ");
    INFO(name << " in " << ran.fragment);
    REQUIRE(at != std::string::npos);
    return std::stod(ran.fragment.substr(at + name.size() + 4));
  };
  CHECK(number("seconds_per_flop") == Approx(2e-10).epsilon(1e-6));
  CHECK(number("efficiency_half_tokens") == Approx(60).epsilon(1e-6));
  CHECK(number("seconds_per_micro_batch") == Approx(4e-4).epsilon(1e-6));
  CHECK(number("seconds_per_collective") == Approx(2e-5).epsilon(1e-6));
  CHECK(number("seconds_per_byte") == Approx(1e-9).epsilon(1e-6));
  CHECK(number("bytes_per_token") == Approx(3000).epsilon(1e-6));
  CHECK(number("static_bytes") == Approx(5e6).epsilon(1e-6));
  CHECK(PlanWith(ran.fragment, {100, 200, 1000}).figures.max_rank_tokens > 0);
}

TEST_CASE("skrull-profile --from-log: exchange has a limit of its own",
          "[profile]") {
  // Alternately a quarter too long and too short.
  const TempDir directory;
  const std::string path = (directory.path() / "steps.jsonl").string();
  const CostForm form = CostForm::Of(false, 4);
  std::ofstream log(path);
  double sign = 1;
  for (const ComputeCase& c : ComputeCases(16, 2048, std::vector{2, 4})) {
    const Unknowns exchange = ExchangeTerms(kTrainerModel, form, c.shares);
    LogRecord record;
    record.measured.shares = c.shares;
    record.measured.compute_seconds =
        2e-10 * ComputeTerms(kTrainerModel, form, c.shares)[kSecondsPerFlop];
    record.measured.exchange_seconds =
        (1 + 0.25 * sign) * (2e-5 * exchange[0] + 1e-9 * exchange[1]);
    sign = -sign;
    log << ToLine(record) << '\n';
  }
  log.close();
  CHECK(Run({"--from-log=" + path, "--dtype=float32"}).code == 0);
  const Ran ran =
      Run({"--from-log=" + path, "--dtype=float32", "--max-link-error=0.1"});
  CHECK(ran.code == 1);
  CHECK_THAT(ran.said, Catch::Contains("exchange: the mean error is"));
}

TEST_CASE("skrull-profile --from-log: reads what the example trainer reports",
          "[profile][daemon]") {
  const TempDir directory;
  const std::string path = (directory.path() / "steps.jsonl").string();
  Daemon daemon;
  Process trainer({SKRULL_CPU_TRAINER_PATH, "--lengths", SKRULL_LENGTHS_PATH,
                   "--server", daemon.address(), "--batch-size", "12",
                   "--steps", "2", "--scale", "64", "--log", path});
  const int trained = trainer.Wait();
  INFO(trainer.Output());
  REQUIRE(trained == 0);
  std::ifstream in(path);
  const auto records = ReadLog(path, &in);
  INFO(records.status().ToString());
  REQUIRE(records.ok());
  // Three policies, two steps, four ranks; a micro-batch at least.
  CHECK(records->size() >= 3 * 2 * 4);
  // At this scale a few kilobytes are exchanged, which say nothing of the
  // seconds of a byte. So the program gets the log without them.
  std::ofstream out(path);
  int exchanges = 0;
  for (LogRecord record : *records) {
    exchanges += HasExchange({&record.measured, 1});
    record.measured.exchange_seconds.reset();
    out << ToLine(record) << '\n';
  }
  out.close();
  CHECK(exchanges > 0);
  const Ran ran = Run({"--from-log=" + path, "--dtype=float32", "--max-error=1",
                       "--bucket-size-tokens=1024"});
  INFO(ran.said << ran.fragment);
  REQUIRE(ran.code == 0);
  CHECK_THAT(ran.said, Catch::Contains("step 1 rank 3 micro-batch 0"));
  CHECK_THAT(ran.fragment, Catch::Contains("no exchange was reported"));
  CHECK(PlanWith(ran.fragment, {1000, 64, 64, 300, 2000})
            .figures.predicted_seconds > 0);
}

}  // namespace skrull::profile
