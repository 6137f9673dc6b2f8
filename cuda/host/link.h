// One connection of a host pool: what is to be sent to a peer, what was posted
// to receive from it, and what it sent before anybody asked for it.
//
// Not thread-safe: its owner locks. Nothing blocks. Buffers of sends and posts
// are touched only by calls of this object, and no more after GiveUp.
#ifndef SKRULL_CUDA_HOST_LINK_H_
#define SKRULL_CUDA_HOST_LINK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "skrull/cuda/host/message.h"
#include "skrull/cuda/host/socket.h"
#include "skrull/cuda/status.h"

namespace skrull::exec {

class Link {
 public:
  // A message under way in either direction. `open` counts those of one
  // exchange that are not done; it is decremented when this one is.
  struct Send {
    MessageLabel label;
    const void* data = nullptr;  // label.bytes
    int64_t* open = nullptr;     // may be null
  };
  struct Post {
    // Of a control message, `bytes` is not compared.
    MessageLabel label;
    void* data = nullptr;         // label.bytes; or
    std::string* text = nullptr;  // gets a control message's payload
    int64_t* open = nullptr;
  };

  // `peer` and `size` as ranks of the pool; `fd` does not block.
  Link(int32_t peer, int32_t size, Fd fd)
      : peer_(peer), size_(size), fd_(std::move(fd)) {}

  int32_t peer() const { return peer_; }
  int fd() const { return fd_.get(); }
  // Neither it nor this side has closed the connection.
  bool connected() const { return fd_.open(); }
  bool wants_to_write() const { return connected() && !sends_.empty(); }
  // The peer said that it sends nothing more.
  bool peer_left() const { return peer_left_; }

  // Enqueues a message. `owned` lives as long as it is needed: `data` may be
  // its bytes. Errors: ABORTED if the peer left or is gone.
  Status Enqueue(const Send& send,
                 std::shared_ptr<std::string> owned = nullptr);

  // Receives the next message of the label's block. Errors: COMM_FAILED if it
  // is here and has another label; ABORTED if the peer left. REQUIRES: none is
  // posted for this block.
  Status Receive(const Post& post);
  // Is the block's post still to be completed?
  bool Awaits(Block block) const { return posts_.contains(block); }

  // Writes what the socket takes. A connection that broke is Read's to report,
  // after what the peer sent before. Errors: ABORTED if the peer left while it
  // should get a collective's message.
  Status Write();

  // Reads what is there, a few megabytes at most, so that other links get their
  // turn. Errors: ABORTED if the connection broke, or the peer left while
  // something is posted; the peer's own failure if it sent one; COMM_FAILED for
  // a message that is not the one posted, or that is none.
  Status Read();

  // Drops all messages and posts. What is sent half is completed with zeros or
  // taken back. From now on Read throws away what comes.
  void GiveUp() noexcept;

  void Close() { fd_.Close(); }

 private:
  struct Outgoing {
    MessageLabel label;
    const char* data = nullptr;
    int64_t* open = nullptr;
    std::shared_ptr<std::string> owned;
    int64_t chunked = 0;  // payload in chunks begun so far
    bool given_up = false;
  };
  struct Incoming {
    MessageLabel label;
    char* to = nullptr;  // into a post's buffer, or `kept`
    std::unique_ptr<char[]> kept;
    int64_t received = 0;
    bool matched = false;  // `post` will take it
    Post post;
  };
  using Inbox = std::list<Incoming>;

  // Puts header or word before the next chunk. False if the front is done.
  bool NextPiece();
  Status OnHeader();
  // Compares, and starts to move into the post's buffer.
  Status Match(const Post& post, Incoming* message);
  void Complete(Inbox::iterator message);
  Status OnMessage();
  // Reads into `to`; 0 if nothing is there now.
  Result<int64_t> ReadSome(void* to, int64_t bytes);
  Status Broken(int error) const;
  Status Left() const;

  const int32_t peer_;
  const int32_t size_;
  Fd fd_;
  bool given_up_ = false;
  bool peer_left_ = false;

  // Sending: the front is under way once prefix_ or chunk_ was begun.
  std::deque<Outgoing> sends_;
  std::array<char, kHeaderBytes> prefix_;
  int64_t prefix_bytes_ = 0;
  int64_t prefix_sent_ = 0;
  const char* chunk_ = nullptr;
  int64_t chunk_left_ = 0;
  bool started_ = false;

  // Receiving. Each message is in inbox_ until it is complete and matched.
  std::map<Block, Post> posts_;
  Inbox inbox_;
  Inbox::iterator current_ = inbox_.end();  // whose payload comes next
  std::array<char, kHeaderBytes> head_;
  int64_t head_received_ = 0;
  int64_t piece_left_ = 0;  // of the current chunk
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_LINK_H_
