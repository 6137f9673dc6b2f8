// skrullctl trace: the Trace Event Format, and that the trace is the plan.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "skrull/cli/plan_json.h"
#include "skrull/server/convert.h"
#include "skrull/tests/client/run_cli.h"
#include "skrull/tests/support/daemon.h"

namespace skrull {
namespace {

using nlohmann::json;
using testing::CliResult;
using testing::ExampleJob;
using testing::Lines;
using testing::RunCli;
using testing::TempDir;
using testing::WriteFile;

// Two DP ranks of three ranks that hold 1000 tokens each; blocks of all kinds.
std::string JobText(const std::string& overlap, bool uniform) {
  return R"(
    model { hidden_size: 896 layer_count: 24 attention_head_count: 14 }
    parallelism { dp_size: 2 cp_size: 3 block_scope: BLOCK_SCOPE_POOL
                  uniform_micro_batch_count: )" +
         std::string(uniform ? "true" : "false") + R"( }
    memory { bucket_size_tokens: 1000 }
    cost { overlap_scope: )" +
         overlap + R"( seconds_per_micro_batch: 0.001
      intra_node { seconds_per_collective: 4.1e-05 seconds_per_byte: 6e-12 } }
  )";
}

constexpr char kLengths[] =
    "700\n5900\n30\n30\n900\n2500\n1\n400\n1000\n1000\n850\n12\n3000\n77\n";

bool IsWhole(double value) { return value == std::floor(value); }

// A thread of a trace: what fills it, in the order of the file.
struct Track {
  std::string process;
  std::string thread;
  std::vector<json> spans;
};

struct Trace {
  std::map<int64_t, Track> tracks;  // by tid
  std::vector<json> steps;          // spans
  std::vector<json> marks;
};

// Fails unless `text` keeps to the format and to what docs/reports.md says.
Trace ReadTrace(const std::string& text) {
  const json document = json::parse(text);
  REQUIRE(document.size() == 2);
  REQUIRE(document["displayTimeUnit"] == "ms");
  Trace trace;
  std::map<int64_t, std::string> processes;
  std::set<int64_t> ordered;  // processes and threads with a sort index
  for (const json& event : document["traceEvents"]) {
    INFO(event.dump());
    const std::string phase = event.at("ph");
    REQUIRE(event.at("name").is_string());
    const int64_t pid = event.at("pid").get<int64_t>();
    REQUIRE(pid > 0);
    if (phase == "M") {
      const std::string name = event["name"];
      if (name == "process_name") {
        REQUIRE(processes.emplace(pid, event["args"]["name"]).second);
      } else if (name == "thread_name") {
        const int64_t tid = event.at("tid").get<int64_t>();
        REQUIRE(tid > 0);
        REQUIRE(processes.contains(pid));
        REQUIRE(
            trace.tracks
                .emplace(tid, Track{processes[pid],
                                    event["args"]["name"].get<std::string>(),
                                    {}})
                .second);
      } else {
        REQUIRE((name == "process_sort_index" || name == "thread_sort_index"));
        REQUIRE(event["args"]["sort_index"].is_number_integer());
      }
      continue;
    }
    // Names come before what they name.
    const int64_t tid = event.at("tid").get<int64_t>();
    REQUIRE(trace.tracks.contains(tid));
    REQUIRE(trace.tracks[tid].process == processes[pid]);
    const double ts = event.at("ts").get<double>();
    REQUIRE(ts >= 0);
    REQUIRE(IsWhole(ts * 1024));
    REQUIRE(event.at("cat").is_string());
    if (phase == "i") {
      REQUIRE(event.at("s") == "g");
      trace.marks.push_back(event);
      continue;
    }
    REQUIRE(phase == "X");
    const double dur = event.at("dur").get<double>();
    REQUIRE(dur >= 0);
    REQUIRE(IsWhole(dur * 1024));
    REQUIRE(event.at("args").is_object());
    Track& track = trace.tracks[tid];
    if (!track.spans.empty()) {
      const json& last = track.spans.back();
      REQUIRE(ts >= last["ts"].get<double>() + last["dur"].get<double>());
    }
    track.spans.push_back(event);
  }
  trace.steps = trace.tracks[1].spans;
  return trace;
}

double End(const json& span) {
  return span["ts"].get<double>() + span["dur"].get<double>();
}

// What `activity` spans of all ranks hold, by (step, sequence): how often.
std::map<std::pair<size_t, int64_t>, int64_t> Placed(
    const Trace& trace, const std::string& activity,
    const std::vector<int64_t>& lengths, size_t batch_size) {
  std::map<std::pair<size_t, int64_t>, int64_t> placed;
  for (const auto& [tid, track] : trace.tracks) {
    for (const json& span : track.spans) {
      if (span["cat"] != activity) continue;
      size_t step = 0;
      while (step + 1 < trace.steps.size() &&
             trace.steps[step + 1]["ts"] <= span["ts"]) {
        ++step;
      }
      const json& args = span["args"];
      REQUIRE(args["sequences"].size() == args["lengths"].size());
      int64_t tokens = 0;
      for (size_t i = 0; i < args["sequences"].size(); ++i) {
        const int64_t sequence = args["sequences"][i];
        REQUIRE(args["lengths"][i] ==
                lengths.at(step * batch_size + static_cast<size_t>(sequence)));
        tokens += args["lengths"][i].get<int64_t>();
        ++placed[{step, sequence}];
        if (activity == "local") continue;
        REQUIRE(args["degrees"][i].get<int64_t>() > 1);
      }
      REQUIRE(args["tokens"] == tokens);
    }
  }
  return placed;
}

TEST_CASE("skrullctl trace: every rank's time is the plan's, step after step",
          "[cli][trace]") {
  const TempDir directory;
  const std::string lengths_path = directory.path() / "lengths";
  WriteFile(lengths_path, kLengths);
  std::vector<int64_t> lengths;
  for (const std::string& line : Lines(kLengths)) {
    lengths.push_back(std::stoll(line));
  }
  for (const char* overlap :
       {"OVERLAP_SCOPE_LAYER", "OVERLAP_SCOPE_ATTENTION"}) {
    for (const bool uniform : {false, true}) {
      const std::string job = directory.path() / "job.textproto";
      WriteFile(job, JobText(overlap, uniform));
      const std::vector<std::string> input = {
          "--job-spec",   job, "--lengths", lengths_path,      "--step", "40",
          "--batch-size", "5", "--policy",  "POLICY_OPTIMIZED"};
      std::vector<std::string> words = {"trace"};
      words.insert(words.end(), input.begin(), input.end());
      const CliResult traced = RunCli(words);
      INFO(overlap << " " << uniform << " " << traced.err);
      REQUIRE(traced.exit_code == 0);
      const Trace trace = ReadTrace(traced.out);

      words = {"plan", "--offline", "--format", "json"};
      words.insert(words.end(), input.begin(), input.end());
      const std::vector<std::string> plans = Lines(RunCli(words).out);
      REQUIRE(plans.size() == 3);
      REQUIRE(trace.steps.size() == 3);
      REQUIRE(trace.marks.size() == 3);
      double begin = 0;  // seconds
      for (size_t i = 0; i < plans.size(); ++i) {
        const json plan = json::parse(plans[i]);
        const json& step = trace.steps[i];
        CHECK(step["name"] == "step " + std::to_string(40 + i));
        CHECK(trace.marks[i]["ts"] == step["ts"]);
        CHECK(step["args"]["digest"] == plan["digest"]);
        CHECK(step["args"]["policy"] == "POLICY_OPTIMIZED");
        CHECK(step["ts"].get<double>() == Approx(begin * 1e6).margin(0.001));
        begin += plan["summary"]["predicted_seconds"].get<double>();
        CHECK(End(step) == Approx(begin * 1e6).margin(0.001));
      }
      // 1 + 2 * (1 + 3 * 2) threads. What computes has no gaps.
      CHECK(trace.tracks.size() == 15);
      int computing = 0;
      std::set<std::string> categories;
      for (const auto& [tid, track] : trace.tracks) {
        for (const json& span : track.spans) categories.insert(span["cat"]);
        if (track.thread.rfind("rank ", 0) != 0 ||
            track.thread.find("exchange") != std::string::npos) {
          continue;
        }
        ++computing;
        double at = 0;
        for (const json& span : track.spans) {
          CHECK(span["ts"] == at);
          at = End(span);
        }
        CHECK(at == End(trace.steps.back()));
      }
      CHECK(computing == 6);
      for (const char* category : {"local", "sharded", "exchange", "overhead",
                                   "idle", "step", "micro-batch"}) {
        CHECK(categories.contains(category));
      }
      CHECK(categories.contains("linear") ==
            (std::string(overlap) == "OVERLAP_SCOPE_ATTENTION"));
      // Each sequence is on one rank, or on all of its block.
      auto placed = Placed(trace, "local", lengths, 5);
      for (const auto& [key, ranks] : placed) CHECK(ranks == 1);
      const auto sharded = Placed(trace, "sharded", lengths, 5);
      CHECK(sharded == Placed(trace, "exchange", lengths, 5));
      for (const auto& [key, ranks] : sharded) {
        CHECK(ranks > 1);
        CHECK(placed.emplace(key, ranks).second);
      }
      CHECK(placed.size() == lengths.size());
    }
  }
}

TEST_CASE("skrullctl trace: the passes of chunks, one after the other",
          "[cli][trace]") {
  const TempDir directory;
  const std::string lengths_path = directory.path() / "lengths";
  WriteFile(lengths_path, kLengths);
  const std::string job = directory.path() / "job.textproto";
  WriteFile(job, JobText("OVERLAP_SCOPE_LAYER", false) +
                     "chunk_flow { chunk_size_tokens: 1500 }");
  const std::vector<std::string> input = {
      "--job-spec",   job,  "--lengths", lengths_path,
      "--batch-size", "14", "--policy",  "POLICY_CHUNK_FLOW"};
  std::vector<std::string> words = {"trace"};
  words.insert(words.end(), input.begin(), input.end());
  const CliResult traced = RunCli(words);
  INFO(traced.err);
  REQUIRE(traced.exit_code == 0);
  const Trace trace = ReadTrace(traced.out);
  words = {"plan", "--offline", "--format", "json"};
  words.insert(words.end(), input.begin(), input.end());
  const json plan = json::parse(Lines(RunCli(words).out).at(0));
  const std::map<std::string, std::string> names = {
      {"CHUNK_PASS_FORWARD", "forward"},
      {"CHUNK_PASS_FORWARD_DISCARD", "forward, discarded"},
      {"CHUNK_PASS_RECOMPUTE", "recompute"},
      {"CHUNK_PASS_BACKWARD", "backward"}};
  REQUIRE(trace.steps.size() == 1);
  const double end = End(trace.steps[0]);
  std::set<std::string> seen;
  int tracks = 0;
  for (const auto& [tid, track] : trace.tracks) {
    if (track.process == "steps" ||
        track.thread.find("exchange") != std::string::npos) {
      continue;
    }
    ++tracks;
    const auto dp_rank = static_cast<size_t>(track.process.back() - '0');
    const json& schedule = plan["chunk_plan"]["schedules"][dp_rank];
    const json& operations = schedule["operations"];
    REQUIRE(track.spans.size() >= operations.size());
    double at = 0;
    for (size_t i = 0; i < operations.size(); ++i) {
      const json& span = track.spans[i];
      CHECK(span["ts"] == at);
      at = End(span);
      CHECK(span["cat"] == names.at(operations[i]["pass"]));
      CHECK(span["args"]["chunk"] == operations[i]["chunk"]);
      seen.insert(span["cat"]);
    }
    CHECK(at == Approx(1e6 * schedule["predicted_seconds"].get<double>())
                    .margin(0.001 * static_cast<double>(operations.size())));
    if (track.thread.rfind("rank ", 0) != 0) {
      CHECK(track.spans.size() == operations.size());
    } else if (track.spans.size() > operations.size()) {
      CHECK(track.spans.back()["cat"] == "idle");
      CHECK(track.spans.back()["ts"] == at);
      at = End(track.spans.back());
    }
    if (track.thread.rfind("rank ", 0) == 0) CHECK(at == end);
  }
  CHECK(tracks == 2 * (1 + 3));
  CHECK(seen.size() == names.size());
}

TEST_CASE("skrullctl trace: a plan file gives the trace that planning does",
          "[cli][trace]") {
  const TempDir directory;
  const std::string job = directory.path() / "job.textproto";
  const std::string lengths = directory.path() / "lengths";
  const std::string plans = directory.path() / "plans";
  const std::string output = directory.path() / "trace.json";
  WriteFile(job, JobText("OVERLAP_SCOPE_LAYER", false));
  WriteFile(lengths, kLengths);
  const std::vector<std::string> input = {
      "--job-spec", job, "--lengths", lengths, "--batch-size", "4"};
  const auto run = [&](std::vector<std::string> words,
                       const std::vector<std::string>& more) {
    words.insert(words.end(), input.begin(), input.end());
    words.insert(words.end(), more.begin(), more.end());
    return RunCli(words);
  };
  WriteFile(plans, run({"plan", "--format", "json"}, {"--step", "3"}).out);
  const CliResult here = run({"trace"}, {"--step", "3"});
  const CliResult file = run({"trace"}, {"--plan", plans, "--output", output});
  INFO(file.err);
  CHECK(here.exit_code == 0);
  CHECK(file.exit_code == 0);
  CHECK(file.out.empty());
  CHECK(testing::ReadFile(output) == here.out);

  const CliResult two = run({"trace"}, {"--plan", plans, "--batches", "2"});
  CHECK(ReadTrace(two.out).steps.size() == 2);
}

TEST_CASE("skrullctl trace: no job name can leave its string", "[cli][trace]") {
  const TempDir directory;
  const std::string job = directory.path() / "job.textproto";
  const std::string lengths = directory.path() / "lengths";
  const std::string plans = directory.path() / "plans";
  WriteFile(job, JobText("OVERLAP_SCOPE_LAYER", false));
  WriteFile(lengths, kLengths);
  absl::StatusOr<cli::PlanLine> line =
      cli::ParsePlanLine(RunCli({"plan", "--job-spec", job, "--lengths",
                                 lengths, "--format", "json"})
                             .out);
  REQUIRE(line.ok());
  const std::string name = "\"}]}\n</script>\\\x01\xe2\x80\xa8";
  line->plan.set_job(name);
  line->plan.set_digest(PlanDigest(line->plan));
  std::string text;
  cli::AppendJson(line->plan, &text);
  WriteFile(plans, text);
  const CliResult result = RunCli(
      {"trace", "--job-spec", job, "--lengths", lengths, "--plan", plans});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(ReadTrace(result.out).steps[0]["args"]["job"] == name);
}

TEST_CASE("skrullctl trace: refused batches and illegal plans are marked",
          "[cli][trace]") {
  const TempDir directory;
  const std::string job = directory.path() / "job.textproto";
  const std::string lengths = directory.path() / "lengths";
  const std::string plans = directory.path() / "plans";
  WriteFile(job, JobText("OVERLAP_SCOPE_LAYER", false));
  WriteFile(lengths, "5\n6001\n7\n");
  const std::vector<std::string> input = {
      "--job-spec", job, "--lengths", lengths, "--batch-size", "1"};
  const auto run = [&](std::vector<std::string> words,
                       const std::vector<std::string>& more) {
    words.insert(words.end(), input.begin(), input.end());
    words.insert(words.end(), more.begin(), more.end());
    return RunCli(words);
  };
  const auto check = [](const CliResult& result, const std::string& message) {
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.err,
               Catch::Contains("batch 1: ") && Catch::Contains(message));
    const Trace trace = ReadTrace(result.out);
    REQUIRE(trace.steps.size() == 2);
    REQUIRE(trace.marks.size() == 3);
    CHECK(trace.marks[1]["name"] == "step 1 refused");
    CHECK(trace.marks[1]["args"]["code"] == "FAILED_PRECONDITION");
    CHECK(trace.marks[1]["ts"] == trace.steps[1]["ts"]);
    CHECK(trace.steps[1]["name"] == "step 2");
  };
  check(run({"trace"}, {}), "6001");
  std::string text = run({"plan", "--format", "json"}, {}).out;
  WriteFile(plans, text);
  check(run({"trace"}, {"--plan", plans}), "FAILED_PRECONDITION");

  // The same lengths, but the file says another one.
  WriteFile(lengths, "5\n6000\n7\n");
  text = run({"plan", "--format", "json"}, {}).out;
  WriteFile(plans, text);
  WriteFile(lengths, "5\n5999\n7\n");
  check(run({"trace"}, {"--plan", plans}), "5999");
}

TEST_CASE("skrullctl trace: usage errors exit 2", "[cli][trace]") {
  const TempDir directory;
  const std::string job = ExampleJob("qwen2.5-0.5b");
  const std::string lengths = directory.path() / "lengths";
  const std::string plans = directory.path() / "plans";
  const std::string nowhere = directory.path() / "no/such/folder";
  WriteFile(lengths, "1\n");
  WriteFile(plans, RunCli({"plan", "--job-spec", job, "--lengths", lengths,
                           "--format", "json"})
                       .out);
  const std::vector<std::string> fine = {"trace", "--job-spec", job,
                                         "--lengths", lengths};
  CHECK(RunCli(fine).exit_code == 0);
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = fine;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::vector<std::string>> usages = {
      {"trace"},
      {"trace", "--job-spec", job},
      {"trace", "--lengths", lengths},
      {"trace", "--job-spec", nowhere, "--lengths", lengths},
      {"trace", "--job-spec", job, "--lengths", nowhere},
      with({"--policy", "POLICY_NONE"}),
      with({"--batches", "0"}),
      with({"--batch-size", "0"}),
      with({"--step", "-1"}),
      with({"--name", "no/slashes"}),
      with({"--output", nowhere}),
      with({"--plan", nowhere}),
      with({"--plan", lengths}),
      with({"--plan", plans, "--policy", "POLICY_SKRULL"}),
      with({"--plan", plans, "--step", "3"}),
      with({"--plan", plans, "--name", "run7"})};
  for (const auto& usage : usages) {
    const CliResult result = RunCli(usage);
    std::string line;
    for (const std::string& word : usage) line += word + " ";
    INFO(line << result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
  const CliResult full = RunCli(with({"--output", "/dev/full"}));
  CHECK(full.exit_code == 2);
  CHECK_THAT(full.err, Catch::Contains("/dev/full"));
}

}  // namespace
}  // namespace skrull
