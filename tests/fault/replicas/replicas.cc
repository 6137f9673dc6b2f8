#include "skrull/tests/fault/replicas/replicas.h"

#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "skrull/client/local_planner.h"

namespace skrull::testing {

std::string SpecText(int variant) {
  return "model { hidden_size: 896 layer_count: 24 attention_head_count: 14 } "
         "parallelism { dp_size: 2 cp_size: 4 } "
         "memory { bucket_size_tokens: " +
         std::to_string(variant == 0 ? 26624 : 20000) +
         " } cost { intra_node { seconds_per_collective: 4e-5 } }";
}

std::vector<int64_t> LengthsOf(int64_t step, int variant) {
  std::mt19937_64 engine(static_cast<uint64_t>(2 * step + variant));
  std::lognormal_distribution<double> distribution(6.0, 1.5);
  std::vector<int64_t> lengths(32);
  for (int64_t& length : lengths) {
    length = 1 + static_cast<int64_t>(distribution(engine)) % 60000;
  }
  return lengths;
}

std::string PlanBytes(int spec_variant, int64_t step, int lengths_variant) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int64_t, int>, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string& bytes = known[{spec_variant, step, lengths_variant}];
  if (bytes.empty()) {
    auto planner = LocalPlanner::Create(SpecText(spec_variant));
    auto plan = planner.value()->PlanBatch(
        {.job = kJob,
         .step = step,
         .lengths = LengthsOf(step, lengths_variant)});
    bytes = plan.value().plan_bytes;
  }
  return bytes;
}

std::unique_ptr<PlannerClient> ClientOf(const std::string& address,
                                        std::chrono::milliseconds timeout) {
  auto client = PlannerClient::Create(
      {.address = address, .timeout = timeout, .unreachable_after = timeout});
  if (!client.ok()) throw std::runtime_error(client.status().ToString());
  return *std::move(client);
}

std::string RefusalOf(const absl::Status& status) {
  const auto detail = GetRefusalDetail(status);
  return detail ? detail->reason : "";
}

Replicas::Replicas() : daemons_(kCount) {
  for (int i = 0; i < kCount; ++i) {
    addresses_.push_back("127.0.0.1:" + std::to_string(FreePort()));
    Start(i);
  }
  const auto job = ClientOf(addresses())->CreateJob(kJob, SpecText(0));
  if (!job.ok()) throw std::runtime_error(job.status().ToString());
}

const std::string& Replicas::address(int replica) const {
  return addresses_[static_cast<size_t>(replica)];
}

std::string Replicas::addresses() const {
  std::string list;
  for (const std::string& one : addresses_) {
    list += (list.empty() ? "" : ",") + one;
  }
  return list;
}

Daemon& Replicas::daemon(int replica) {
  return *daemons_[static_cast<size_t>(replica)];
}

void Replicas::Kill(int replica) { daemon(replica).Kill(); }

void Replicas::Start(int replica) {
  daemons_[static_cast<size_t>(replica)] =
      std::make_unique<Daemon>(std::vector<std::string>{
          "--listen_address=" + address(replica),
          "--store=" + etcd_.uri("replicas"), "--etcd_timeout_seconds=10"});
}

}  // namespace skrull::testing
