// The connections of one rank to all others of its pool, and the thread that
// serves them.
//
// The thread notices at once when a peer fails, leaves or is gone, whatever the
// rank is doing. A failure is for the whole pool: it is sticky, ends everything
// that waits here, and is sent to all peers that can still be reached.
#ifndef SKRULL_CUDA_HOST_LINKS_H_
#define SKRULL_CUDA_HOST_LINKS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/first_failure.h"
#include "skrull/cuda/host/link.h"
#include "skrull/cuda/host/message.h"
#include "skrull/cuda/host/socket.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

// Thread-safe.
class Links {
 public:
  // What one rank does in a collective. Peers are ranks of the pool.
  struct Out {
    int32_t peer = 0;
    const void* data = nullptr;  // `bytes` of the label
  };
  struct In {
    int32_t peer = 0;
    void* data = nullptr;         // `bytes` of the label; or
    std::string* text = nullptr;  // of a control message
  };

  // `connections[r]` goes to rank r; that of `rank` is not used. Starts the
  // thread. Throws std::system_error if it does not start.
  Links(int32_t rank, std::vector<Fd> connections);
  // Says goodbye to the others, or why this rank failed, and closes. Takes a
  // second at most. REQUIRES: no exchange is running.
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return static_cast<int32_t>(links_.size()); }

  // Sends and receives messages of one label, and waits for all of them. What
  // `out` and `in` point to is not used any more when it returns. One exchange
  // of a block at a time. Errors, which all fail the pool: DEADLINE_EXCEEDED
  // naming the peers that are missing; COMM_FAILED if a peer came with another
  // label; ABORTED if one left or is gone; an earlier failure.
  Status Exchange(const MessageLabel& label, std::span<const Out> out,
                  std::span<const In> in, std::chrono::nanoseconds time_limit);

  // The pool's failure, or OK. Takes no lock while it is OK.
  Status Poll() const { return failure_.Get(); }
  // Fails the pool, here and on all peers. No effect if it failed before.
  void Fail(const Status& status) noexcept;

 private:
  Status StartLocked(const MessageLabel& label, std::span<const Out> out,
                     std::span<const In> in, int64_t* open);
  std::string MissingLocked(const MessageLabel& label, std::span<const Out> out,
                            std::span<const In> in) const;
  // Tells all peers, also what another told: one that closes its connections
  // next must not seem to be the culprit.
  void FailLocked(const Status& status) noexcept;
  void ServeLocked(Link* link, short events);
  bool HasUnsentLocked() const;
  void Wake() noexcept;
  void Run();

  const int32_t rank_;
  FirstFailure failure_;
  Fd wake_read_, wake_write_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // The state below is protected by mutex_. links_[rank_] is not connected.
  std::vector<std::unique_ptr<Link>> links_;
  bool closing_ = false;
  SteadyTime close_deadline_;

  std::thread thread_;  // last: it uses the rest
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_LINKS_H_
