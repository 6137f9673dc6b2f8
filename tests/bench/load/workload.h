// The calls that a load is made of.
//
// Batches are drawn once and encoded once, so that sending one costs little
// more than sending its bytes; a step is new each time, so each is planned.
#ifndef SKRULL_TESTS_BENCH_LOAD_WORKLOAD_H_
#define SKRULL_TESTS_BENCH_LOAD_WORKLOAD_H_

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "skrull/tests/bench/load/load_options.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::load {

// One call to make.
struct WorkItem {
  Method method = Method::kPlanBatch;
  size_t job = 0;
  int64_t step = 0;
  // The encoded request; of kStream, the encoded StreamPlansRequest.
  grpc::ByteBuffer request;
};

// Thread-safe.
class Workload {
 public:
  // Throws std::runtime_error if the file of lengths cannot be read.
  explicit Workload(const LoadOptions& options);

  // To be made, all of them, before the first item is sent.
  std::vector<v1::CreateJobRequest> Jobs() const;

  // The next call, drawn by the weights. Calls that need a committed step come
  // as PlanBatch until their job has one.
  WorkItem Next();

  // The plan of a step stands committed.
  void Committed(size_t job, int64_t step);

 private:
  struct Job {
    std::string name;
    int64_t next_step = 0;
    int64_t committed_step = -1;  // the last
  };

  std::vector<int64_t> ReadLengths() const;
  // `count` batches of `size` lengths, each as the encoded field.
  std::vector<grpc::Slice> EncodeBatches(int64_t count, int64_t size);
  grpc::ByteBuffer PlanRequest(const Job& job, int64_t step,
                               const grpc::Slice& lengths, bool stream) const;

  const LoadOptions options_;
  v1::Policy policy_ = v1::POLICY_UNSPECIFIED;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::discrete_distribution<int> methods_;
  std::vector<Job> jobs_;
  std::vector<int64_t> lengths_;  // of the file; empty: log-normal
  size_t next_length_ = 0;
  std::vector<grpc::Slice> batches_;
  std::vector<grpc::Slice> big_batches_;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_WORKLOAD_H_
