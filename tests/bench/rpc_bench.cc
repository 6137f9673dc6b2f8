// What the service costs beside the planning, measured on a real daemon over
// loopback: see docs/benchmarks.md for what each row means.
//
//   rpc_bench [--benchmark_out=FILE]    table on stdout, JSON to FILE
//
// Other --benchmark_* flags are accepted, so that one runner runs all benches,
// and have no effect. Every answer is verified; a wrong one ends the bench with
// status 1.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "skrull/tests/support/daemon.h"
#include "skrull/tests/support/etcd.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull {
namespace {

using Clock = std::chrono::steady_clock;
using v1::PlannerService;

constexpr int kSamples = 2000;
constexpr int kBatchSize = 256;
constexpr int kInFlight = 32;
constexpr std::chrono::seconds kThroughputTime{3};
constexpr int kRanks = 1024;
constexpr int kRounds = 10;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void Require(const grpc::Status& status, const std::string& what) {
  Require(status.ok(), what + ": " + status.error_message());
}

// One line of the table.
struct Row {
  std::string name;
  double value = 0;  // median, or the one number
  double min = 0;
  double max = 0;
  std::string unit;
};

Row Summary(const std::string& name, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {name, samples[samples.size() / 2], samples.front(), samples.back(),
          "s"};
}

class Report {
 public:
  void Add(const Row& row) {
    rows_.push_back(row);
    if (row.unit == "s") {
      std::printf("%-52s %10.1f us  (%.1f .. %.1f)\n", row.name.c_str(),
                  row.value * 1e6, row.min * 1e6, row.max * 1e6);
    } else {
      std::printf("%-52s %10.3f %s\n", row.name.c_str(), row.value,
                  row.unit.c_str());
    }
    std::fflush(stdout);
  }

  void WriteJson(const std::string& path) const {
    std::ofstream file(path);
    file << "{\n  \"context\": {\"host_cpus\": "
         << std::thread::hardware_concurrency() << ", \"samples\": " << kSamples
         << ", \"batch_size\": " << kBatchSize << ", \"ranks\": " << kRanks
         << "},\n  \"benchmarks\": [";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      file << (i == 0 ? "\n" : ",\n") << "    {\"name\": \"" << row.name
           << "\", \"value\": " << row.value << ", \"min\": " << row.min
           << ", \"max\": " << row.max << ", \"unit\": \"" << row.unit << "\"}";
    }
    file << "\n  ]\n}\n";
    Require(file.good(), "cannot write " + path);
  }

 private:
  std::vector<Row> rows_;
};

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// The paper's Qwen2.5-0.5B job on another pool.
v1::CreateJobRequest JobRequest(const std::string& name, int dp, int cp) {
  v1::CreateJobRequest request;
  request.set_name(name);
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_model()->set_hidden_size(896);
  spec.mutable_model()->set_layer_count(24);
  spec.mutable_model()->set_attention_head_count(14);
  spec.mutable_model()->set_kv_head_count(2);
  spec.mutable_parallelism()->set_dp_size(dp);
  spec.mutable_parallelism()->set_cp_size(cp);
  spec.mutable_parallelism()->set_ranks_per_node(8);
  spec.mutable_memory()->set_bucket_size_tokens(26624);
  spec.mutable_cost()->set_seconds_per_micro_batch(0.035);
  spec.mutable_cost()->mutable_intra_node()->set_seconds_per_byte(6e-12);
  return request;
}

// A long-tailed batch, the same for the same step.
v1::PlanBatchRequest BatchRequest(const std::string& job, int64_t step,
                                  int size) {
  std::mt19937_64 random(static_cast<uint64_t>(step));
  std::lognormal_distribution<double> length(6.0, 1.3);
  v1::PlanBatchRequest request;
  request.set_job(job);
  request.set_step(step);
  for (int i = 0; i < size; ++i) {
    request.add_lengths(
        std::clamp<int64_t>(static_cast<int64_t>(length(random)), 1, 150000));
  }
  return request;
}

void CreateJob(PlannerService::Stub* stub, const v1::CreateJobRequest& job) {
  grpc::ClientContext context;
  v1::Job response;
  Require(stub->CreateJob(&context, job, &response), "CreateJob");
}

// An empty unary RPC of the same server: a health check.
class EmptyRpc {
 public:
  explicit EmptyRpc(const std::shared_ptr<grpc::Channel>& channel)
      : channel_(channel),
        stub_(channel),
        method_("/grpc.health.v1.Health/Check",
                grpc::internal::RpcMethod::NORMAL_RPC, channel) {}

  void Call() {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    Require(
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel_.get(), method_, &context, Empty(), &response),
        "health check");
  }
  void CallAsync(grpc::ClientContext* context, grpc::ByteBuffer* request,
                 grpc::ByteBuffer* response,
                 std::function<void(grpc::Status)> done) {
    *request = Empty();
    stub_.UnaryCall(context, "/grpc.health.v1.Health/Check",
                    grpc::StubOptions(), request, response, std::move(done));
  }

 private:
  static grpc::ByteBuffer Empty() {
    const grpc::Slice none("");
    return grpc::ByteBuffer(&none, 1);
  }

  std::shared_ptr<grpc::Channel> channel_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::internal::RpcMethod method_;
};

// Time of PlanBatch beside planning, against the empty RPC; taken in turns.
void MeasureRoundTrips(const std::string& store, const testing::Daemon& daemon,
                       Report* report) {
  const auto channel = Connect(daemon.address());
  const auto stub = PlannerService::NewStub(channel);
  EmptyRpc empty(channel);
  CreateJob(stub.get(), JobRequest("latency", 4, 8));
  std::vector<double> empties, batches, repeats, shares, plannings, rests;
  for (int i = 0; i < kSamples + 100; ++i) {
    const auto before_empty = Clock::now();
    empty.Call();
    const double empty_seconds = Since(before_empty);

    const v1::PlanBatchRequest request = BatchRequest("latency", i, kBatchSize);
    double seconds[2];
    v1::PlanBatchResponse responses[2];
    for (int again = 0; again < 2; ++again) {
      grpc::ClientContext context;
      const auto start = Clock::now();
      Require(stub->PlanBatch(&context, request, &responses[again]),
              "PlanBatch");
      seconds[again] = Since(start);
    }
    v1::GetRankPlanRequest share;
    share.set_job("latency");
    share.set_step(i);
    v1::RankPlan rank_plan;
    grpc::ClientContext share_context;
    const auto before_share = Clock::now();
    Require(stub->GetRankPlan(&share_context, share, &rank_plan),
            "GetRankPlan");
    const double share_seconds = Since(before_share);

    int placed = 0;
    for (const v1::MicroBatch& mb : responses[0].plan().micro_batches()) {
      placed += mb.placements_size();
    }
    Require(placed == kBatchSize && responses[0].has_planning_time() &&
                !responses[1].has_planning_time() &&
                responses[0].plan().digest() == responses[1].plan().digest() &&
                responses[0].plan().digest() == rank_plan.digest(),
            "PlanBatch gave a wrong answer");
    if (i < 100) continue;  // warm-up
    const double planning =
        1e-9 * static_cast<double>(responses[0].planning_time().nanos());
    empties.push_back(empty_seconds);
    batches.push_back(seconds[0]);
    repeats.push_back(seconds[1]);
    shares.push_back(share_seconds);
    plannings.push_back(planning);
    rests.push_back(seconds[0] - planning);
  }
  const std::string suffix = " (" + store + ")";
  const Row base = Summary("empty unary RPC" + suffix, empties);
  const Row rest = Summary("PlanBatch minus planning" + suffix, rests);
  report->Add(base);
  report->Add(Summary("PlanBatch, 256 lengths" + suffix, batches));
  report->Add(Summary("  of it planning and checking" + suffix, plannings));
  report->Add(rest);
  report->Add(Summary("PlanBatch, committed before" + suffix, repeats));
  report->Add(Summary("GetRankPlan, committed before" + suffix, shares));
  for (const std::string phase : {"decode", "encode", "commit"}) {
    const std::string labels = "{phase=\"" + phase + "\"}";
    const double mean = daemon.Metric("skrull_planning_seconds_sum" + labels) /
                        daemon.Metric("skrull_planning_seconds_count" + labels);
    report->Add(
        {"  in the daemon, mean: " + phase + suffix, mean, mean, mean, "s"});
  }
  report->Add({"PlanBatch minus planning / empty RPC" + suffix,
               rest.value / base.value, 0, 0, "x  (target: at most 2)"});
}

// Runs `call` with kInFlight calls under way; calls a second.
double Throughput(
    const std::function<void(int slot, std::function<void()> done)>& call) {
  std::mutex mutex;
  std::condition_variable idle;
  int running = kInFlight;
  std::atomic<int64_t> finished = 0;
  const auto start = Clock::now();
  std::function<void(int)> next = [&](int slot) {
    call(slot, [&, slot] {
      ++finished;
      if (Clock::now() - start < kThroughputTime) {
        next(slot);
        return;
      }
      std::lock_guard<std::mutex> lock(mutex);
      if (--running == 0) idle.notify_one();
    });
  };
  for (int slot = 0; slot < kInFlight; ++slot) next(slot);
  std::unique_lock<std::mutex> lock(mutex);
  idle.wait(lock, [&] { return running == 0; });
  return static_cast<double>(finished) / Since(start);
}

void MeasureThroughput(const std::string& address, Report* report) {
  const auto channel = Connect(address);
  const auto stub = PlannerService::NewStub(channel);
  EmptyRpc empty(channel);
  CreateJob(stub.get(), JobRequest("throughput", 4, 8));
  {
    grpc::ClientContext context;
    v1::PlanBatchResponse response;
    Require(stub->PlanBatch(&context, BatchRequest("throughput", 1, kBatchSize),
                            &response),
            "PlanBatch");
  }
  struct Slot {
    std::unique_ptr<grpc::ClientContext> context;
    grpc::ByteBuffer empty_request, empty_response;
    v1::GetRankPlanRequest request;
    v1::RankPlan response;
  };
  std::vector<Slot> slots(kInFlight);
  std::atomic<int> failures = 0;
  double best_empty = 0;
  double best_rank = 0;
  for (int round = 0; round < 2; ++round) {
    best_empty =
        std::max(best_empty, Throughput([&](int i, std::function<void()> done) {
                   Slot& slot = slots[static_cast<size_t>(i)];
                   slot.context = std::make_unique<grpc::ClientContext>();
                   empty.CallAsync(slot.context.get(), &slot.empty_request,
                                   &slot.empty_response,
                                   [&, done](const grpc::Status& status) {
                                     if (!status.ok()) ++failures;
                                     done();
                                   });
                 }));
    best_rank =
        std::max(best_rank, Throughput([&](int i, std::function<void()> done) {
                   Slot& slot = slots[static_cast<size_t>(i)];
                   slot.context = std::make_unique<grpc::ClientContext>();
                   slot.request.set_job("throughput");
                   slot.request.set_step(1);
                   slot.request.set_rank(i);
                   stub->async()->GetRankPlan(
                       slot.context.get(), &slot.request, &slot.response,
                       [&, done](const grpc::Status& status) {
                         if (!status.ok()) ++failures;
                         done();
                       });
                 }));
  }
  Require(failures == 0, "calls failed under load");
  report->Add({"empty unary RPC, 32 in flight", best_empty, 0, 0, "calls/s"});
  report->Add({"GetRankPlan, 32 in flight", best_rank, 0, 0, "calls/s"});
  report->Add({"GetRankPlan / empty RPC", best_rank / best_empty, 0, 0,
               "x  (target: at least 0.5)"});
}

// kRanks calls wait for one step; the time from sending its batch to the last
// rank's answer, and that minus the batch's own round trip.
void MeasureWaitingRanks(const testing::Daemon& daemon, int connections,
                         Report* report) {
  std::vector<std::unique_ptr<PlannerService::Stub>> stubs;
  for (int i = 0; i < connections; ++i) {
    stubs.push_back(PlannerService::NewStub(Connect(daemon.address())));
  }
  const auto planner = PlannerService::NewStub(Connect(daemon.address()));
  const std::string job = "ranks" + std::to_string(connections);
  CreateJob(planner.get(), JobRequest(job, kRanks / 8, 8));
  std::vector<double> from_send, from_commit;
  for (int round = 0; round < kRounds; ++round) {
    struct Wait {
      grpc::ClientContext context;
      v1::GetRankPlanRequest request;
      v1::RankPlan response;
      grpc::Status status;
    };
    std::vector<Wait> waits(kRanks);
    std::mutex mutex;
    std::condition_variable all_answered;
    int left = kRanks;
    Clock::time_point last;
    for (int rank = 0; rank < kRanks; ++rank) {
      Wait& wait = waits[static_cast<size_t>(rank)];
      wait.context.set_deadline(std::chrono::system_clock::now() +
                                std::chrono::seconds(60));
      wait.request.set_job(job);
      wait.request.set_step(round);
      wait.request.set_rank(rank);
      stubs[static_cast<size_t>(rank % connections)]->async()->GetRankPlan(
          &wait.context, &wait.request, &wait.response,
          [&](const grpc::Status& status) {
            wait.status = status;
            std::lock_guard<std::mutex> lock(mutex);
            last = Clock::now();
            if (--left == 0) all_answered.notify_one();
          });
    }
    while (daemon.Metric("skrull_rank_waits") < kRanks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const auto sent = Clock::now();
    grpc::ClientContext context;
    v1::PlanBatchResponse response;
    Require(planner->PlanBatch(&context, BatchRequest(job, round, 4 * kRanks),
                               &response),
            "PlanBatch");
    std::unique_lock<std::mutex> lock(mutex);
    all_answered.wait(lock, [&] { return left == 0; });
    const double planning =
        1e-9 * static_cast<double>(response.planning_time().nanos());
    const double seconds = std::chrono::duration<double>(last - sent).count();
    from_send.push_back(seconds);
    from_commit.push_back(seconds - planning);
    int64_t rows = 0;
    for (const Wait& wait : waits) {
      Require(wait.status, "GetRankPlan");
      Require(wait.response.digest() == response.plan().digest(),
              "ranks disagree");
      for (const auto& mb : wait.response.micro_batches()) {
        rows += mb.row_count();
      }
    }
    Require(rows == waits[0].response.batch_token_count(),
            "the ranks' rows are not the batch");
  }
  const std::string suffix =
      ", " + std::to_string(connections) + " connections";
  report->Add(
      Summary("1024 waiting ranks, send to last answer" + suffix, from_send));
  report->Add(
      Summary("  minus planning (target: 100 ms)" + suffix, from_commit));
}

int Run(const std::string& json) {
  Report report;
  {
    testing::Daemon daemon({"--log_level=error"});
    MeasureRoundTrips("memory", daemon, &report);
    MeasureThroughput(daemon.address(), &report);
    MeasureWaitingRanks(daemon, 8, &report);
    MeasureWaitingRanks(daemon, kRanks, &report);
  }
  {
    testing::TempDir directory;
    testing::Daemon daemon(
        {"--log_level=error",
         "--store=sqlite:" + (directory.path() / "store.db").string()});
    MeasureRoundTrips("sqlite", daemon, &report);
  }
  if (testing::HaveEtcd()) {
    const testing::Etcd etcd;
    testing::Daemon daemon(
        {"--log_level=error", "--store=" + etcd.uri("bench")});
    MeasureRoundTrips("etcd", daemon, &report);
  }
  if (!json.empty()) report.WriteJson(json);
  return 0;
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string out = "--benchmark_out=";
    if (argument.starts_with(out)) {
      json = argument.substr(out.size());
    } else if (!argument.starts_with("--benchmark_")) {
      std::fprintf(stderr, "usage: rpc_bench [--benchmark_out=FILE]\n");
      return 2;
    }
  }
  // One connection a rank needs more files than many systems allow by default.
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  try {
    return skrull::Run(json);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "rpc_bench: %s\n", exception.what());
    return 1;
  }
}
