// Makes the calls of a workload, at a fixed rate or with a fixed number under
// way, and records what came of them.
#ifndef SKRULL_TESTS_BENCH_LOAD_DRIVER_H_
#define SKRULL_TESTS_BENCH_LOAD_DRIVER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "skrull/tests/bench/load/load_options.h"
#include "skrull/tests/bench/load/recorder.h"
#include "skrull/tests/bench/load/stream_client.h"
#include "skrull/tests/bench/load/workload.h"

namespace skrull::load {

class Driver {
 public:
  // Connects and registers the workload's jobs. All must outlive the driver.
  // Throws std::runtime_error if a job cannot be registered within a minute.
  Driver(const LoadOptions& options, Workload* workload, Recorder* recorder);
  // REQUIRES: no call is under way.
  ~Driver() = default;

  // Open loop: call i is due at `begin` + i / rate, is sent then or as soon
  // after as the machine lets us, and its time counts from when it was due,
  // whatever became of the calls before it; unless options.max_in_flight are
  // under way, when it is held back. Returns at `end`.
  void RunOpen(Time begin, Time end);

  // Closed loop: each of options.in_flight callers makes a call, waits for the
  // answer and makes the next; one that is refused does not pause. Returns at
  // `end`.
  void RunClosed(Time end);

  // Waits for the calls that are under way, until their deadlines and then ten
  // seconds more; how many have not ended by then: those are stuck.
  int64_t WaitForCalls();

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<Stub> stub;
    std::unique_ptr<StreamClient> stream;
  };
  struct Call {
    WorkItem item;
    Time due;
    Time sent;
    grpc::ClientContext context;
    grpc::ByteBuffer response;
  };

  // As many calls are under way as may be.
  bool Full();
  // Starts the workload's next call.
  void Start(Time due);
  // A call has ended. In closed loop its caller makes the next.
  void Ended();

  const LoadOptions options_;
  Workload* const workload_;
  Recorder* const recorder_;
  std::vector<Connection> connections_;
  std::atomic<uint64_t> next_connection_ = 0;
  Time closed_until_ = Time::min();  // set before any call of RunClosed

  std::mutex mutex_;
  std::condition_variable none_left_;
  int64_t under_way_ = 0;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_DRIVER_H_
