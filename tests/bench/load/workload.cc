#include "skrull/tests/bench/load/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "google/protobuf/io/coded_stream.h"

namespace skrull::load {
namespace {

// Enough to differ, few enough to stay in a cache.
constexpr int64_t kBatches = 64;
constexpr int64_t kBigBatches = 4;
// A log-normal has no end; a sequence longer than the pool holds is refused.
constexpr int64_t kMaxLength = 150000;

constexpr uint8_t LengthDelimited(int field) {
  return static_cast<uint8_t>(field << 3 | 2);
}

std::string Varint(uint64_t value) {
  uint8_t bytes[10];
  uint8_t* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value,
                                                                    bytes);
  return std::string(bytes, end);
}

grpc::ByteBuffer Encode(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

Workload::Workload(const LoadOptions& options)
    : options_(options),
      random_(options.seed),
      methods_(std::begin(options.weights), std::end(options.weights)) {
  if (!options.policy.empty() && !v1::Policy_Parse(options.policy, &policy_)) {
    throw std::runtime_error("no such policy: " + options.policy);
  }
  for (int64_t i = 0; i < options.jobs; ++i) {
    jobs_.push_back({.name = options.job_prefix + "-" + std::to_string(i)});
  }
  lengths_ = ReadLengths();
  batches_ = EncodeBatches(kBatches, options.batch_size);
  if (options.big_share > 0) {
    big_batches_ = EncodeBatches(kBigBatches, options.big_batch_size);
  }
}

std::vector<v1::CreateJobRequest> Workload::Jobs() const {
  std::vector<v1::CreateJobRequest> requests;
  for (const Job& job : jobs_) {
    // The Skrull paper's Qwen2.5-0.5B job, on a pool of one's choice.
    v1::CreateJobRequest& request = requests.emplace_back();
    request.set_name(job.name);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->set_hidden_size(896);
    spec.mutable_model()->set_layer_count(24);
    spec.mutable_model()->set_attention_head_count(14);
    spec.mutable_model()->set_kv_head_count(2);
    spec.mutable_parallelism()->set_dp_size(options_.dp_size);
    spec.mutable_parallelism()->set_cp_size(options_.cp_size);
    spec.mutable_parallelism()->set_ranks_per_node(8);
    spec.mutable_memory()->set_bucket_size_tokens(26624);
    spec.mutable_cost()->set_seconds_per_micro_batch(0.035);
    spec.mutable_cost()->mutable_intra_node()->set_seconds_per_byte(6e-12);
    spec.set_policy(policy_);
  }
  return requests;
}

WorkItem Workload::Next() {
  std::lock_guard<std::mutex> lock(mutex_);
  WorkItem item;
  item.method = static_cast<Method>(methods_(random_));
  item.job =
      std::uniform_int_distribution<size_t>(0, jobs_.size() - 1)(random_);
  Job& job = jobs_[item.job];
  const bool plans =
      item.method == Method::kPlanBatch || item.method == Method::kStream;
  if (!plans && job.committed_step >= 0) {
    item.step = job.committed_step;
    const int32_t rank = std::uniform_int_distribution<int32_t>(
        0, options_.dp_size * options_.cp_size - 1)(random_);
    if (item.method == Method::kGetRankPlan) {
      v1::GetRankPlanRequest request;
      request.set_job(job.name);
      request.set_step(item.step);
      request.set_rank(rank);
      item.request = Encode(request);
    } else {
      v1::ReportStepRequest request;
      request.set_job(job.name);
      request.mutable_report()->set_step(item.step);
      request.mutable_report()->set_rank(rank);
      request.mutable_report()->set_outcome(v1::STEP_OUTCOME_OK);
      item.request = Encode(request);
    }
    return item;
  }
  if (!plans) item.method = Method::kPlanBatch;
  item.step = job.next_step++;
  const bool big = !big_batches_.empty() &&
                   std::bernoulli_distribution(options_.big_share)(random_);
  const std::vector<grpc::Slice>& batches = big ? big_batches_ : batches_;
  item.request = PlanRequest(
      job, item.step, batches[static_cast<size_t>(item.step) % batches.size()],
      item.method == Method::kStream);
  return item;
}

void Workload::Committed(size_t job, int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  jobs_[job].committed_step = std::max(jobs_[job].committed_step, step);
}

std::vector<int64_t> Workload::ReadLengths() const {
  std::vector<int64_t> lengths;
  if (options_.lengths_file.empty()) return lengths;
  std::ifstream file(options_.lengths_file);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    lengths.push_back(std::stoll(line));
  }
  if (lengths.empty()) {
    throw std::runtime_error("no lengths in " + options_.lengths_file);
  }
  return lengths;
}

std::vector<grpc::Slice> Workload::EncodeBatches(int64_t count, int64_t size) {
  std::lognormal_distribution<double> length(options_.log_mean,
                                             options_.log_deviation);
  std::vector<grpc::Slice> batches;
  for (int64_t i = 0; i < count; ++i) {
    std::string packed;
    for (int64_t k = 0; k < size; ++k) {
      const int64_t drawn = lengths_.empty()
                                ? static_cast<int64_t>(length(random_))
                                : lengths_[next_length_++ % lengths_.size()];
      packed += Varint(
          static_cast<uint64_t>(std::clamp<int64_t>(drawn, 1, kMaxLength)));
    }
    // PlanBatchRequest.lengths
    batches.emplace_back(std::string(1, static_cast<char>(LengthDelimited(6))) +
                         Varint(packed.size()) + packed);
  }
  return batches;
}

grpc::ByteBuffer Workload::PlanRequest(const Job& job, int64_t step,
                                       const grpc::Slice& lengths,
                                       bool stream) const {
  v1::PlanBatchRequest request;
  request.set_job(job.name);
  request.set_step(step);
  std::string head = request.SerializeAsString();
  if (stream) {
    // StreamPlansRequest.batch
    head = std::string(1, static_cast<char>(LengthDelimited(1))) +
           Varint(head.size() + lengths.size()) + head;
  }
  const grpc::Slice slices[] = {grpc::Slice(head), lengths};
  return grpc::ByteBuffer(slices, std::size(slices));
}

}  // namespace skrull::load
