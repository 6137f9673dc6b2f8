// What is behind a PlanStream: the batches in it, the stream to the daemon, and
// the two threads that read and write it. Not for users of the client.
#ifndef SKRULL_CLIENT_CPP_INTERNAL_STREAM_PUMP_H_
#define SKRULL_CLIENT_CPP_INTERNAL_STREAM_PUMP_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "skrull/client/internal/connection.h"
#include "skrull/client/plan_stream.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull {

// Invariants, under mutex_:
//  (1) a batch of items_ has its result, or is in exactly one of unsent_ and
//      in_flight_;
//  (2) in_flight_ is in the order of writing, which is that of the answers;
//  (3) in_flight_ is empty while no stream is open.
// Thread-safe.
class PlanStream::Impl {
 public:
  Impl(std::shared_ptr<client_internal::Connection> connection,
       client_internal::CallIdentity identity, v1::PlanBatchRequest common);
  ~Impl();

  const client_internal::Connection& connection() const { return *connection_; }

  absl::Status Send(int64_t step, const std::vector<int64_t>& lengths,
                    int32_t attempt);
  absl::StatusOr<StreamedPlan> Next(
      std::optional<std::chrono::milliseconds> timeout);
  int pending() const;

 private:
  using Wire =
      grpc::ClientReaderWriter<v1::StreamPlansRequest, v1::StreamPlansResponse>;

  struct Item {
    explicit Item(const ClientOptions& options) : backoff(options) {}

    v1::StreamPlansRequest request;
    client_internal::Backoff backoff;        // after refusals to retry
    client_internal::SteadyTime not_before;  // do not write it earlier
    std::optional<absl::StatusOr<PlanResult>> result;
  };
  using ItemPtr = std::shared_ptr<Item>;
  using Lock = std::unique_lock<std::mutex>;

  void ReadLoop();
  void WriteLoop();
  // Opens a stream, reads it to its end and returns how it ended. `lock` is
  // released meanwhile.
  absl::Status RunStream(Lock& lock);
  // Waits between two streams: until `until`, or until a lost connection
  // stands again.
  void WaitToReopen(Lock& lock, client_internal::SteadyTime until);

  // The following run under mutex_.

  // Takes one answer; false if it is none to the oldest batch in flight.
  bool Accept(const v1::StreamPlansResponse& response);
  // Puts what was in flight back, after the stream ended with `status`.
  void Recover(const absl::Status& status);
  void Resolve(const ItemPtr& item, absl::StatusOr<PlanResult> result);
  // Removes and returns the next batch to write; null if none may be written
  // now. `wait_until` gets the time at which one may, if time decides.
  ItemPtr TakeWritable(std::optional<client_internal::SteadyTime>* wait_until);

  const std::shared_ptr<client_internal::Connection> connection_;
  const client_internal::CallIdentity identity_;
  const v1::PlanBatchRequest common_;

  mutable std::mutex mutex_;
  // Signalled at every change of what follows, which mutex_ guards.
  std::condition_variable changed_;
  bool closed_ = false;
  std::deque<ItemPtr> items_;      // what Next() has not returned, oldest first
  std::deque<ItemPtr> unsent_;     // to be written
  std::deque<ItemPtr> in_flight_;  // written, not answered
  Wire* stream_ = nullptr;         // open for writing
  grpc::ClientContext* context_ = nullptr;  // of the open stream
  bool writing_ = false;                    // the writer is inside Write()
  bool answered_ = false;                   // the open stream gave an answer
  // After a stream died of one of several batches: batches still to be written
  // one at a time, to learn which.
  size_t suspects_ = 0;
  // Since when, and how, the daemon cannot be reached.
  std::optional<client_internal::SteadyTime> unreachable_since_;
  absl::Status last_error_;

  // Last: they use all of the above.
  std::thread reader_;
  std::thread writer_;
};

}  // namespace skrull

#endif  // SKRULL_CLIENT_CPP_INTERNAL_STREAM_PUMP_H_
