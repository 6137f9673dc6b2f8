// One StreamPlans call whose batches are sent as they come and whose answers,
// which come in the same order, are timed.
#ifndef SKRULL_TESTS_BENCH_LOAD_STREAM_CLIENT_H_
#define SKRULL_TESTS_BENCH_LOAD_STREAM_CLIENT_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace skrull::load {

// Thread-safe.
class StreamClient
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  // With why the batch was refused; empty: it was planned.
  using Done = std::function<void(const std::string& reason)>;

  // Opens the stream. `stub` must outlive the object.
  explicit StreamClient(Stub* stub);
  // Cancels what is not answered, and waits until gRPC is done with it.
  ~StreamClient() override;

  // Sends an encoded StreamPlansRequest when those before it are sent. `done`
  // is called once, on a thread of gRPC, or here if the stream has broken.
  void Send(grpc::ByteBuffer request, Done done);

 private:
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  grpc::ByteBuffer response_;  // of the read under way
  std::mutex mutex_;
  std::condition_variable ended_;
  bool writing_ = false;  // a write of to_send_.front() is under way
  bool done_ = false;
  std::string broken_;  // why the stream has ended
  std::deque<grpc::ByteBuffer> to_send_;
  std::deque<Done> unanswered_;
};

}  // namespace skrull::load

#endif  // SKRULL_TESTS_BENCH_LOAD_STREAM_CLIENT_H_
