// What ranks of a host pool send each other: a header, then its payload in
// chunks. The first chunk follows the header; each later one follows a word
// that says whether it comes or the sender gives the message up, so that a
// sender can always tell of a failure, soon and without bytes that it no longer
// has.
#ifndef SKRULL_CUDA_HOST_MESSAGE_H_
#define SKRULL_CUDA_HOST_MESSAGE_H_

#include <cstdint>
#include <string>

#include "skrull/cuda/status.h"
#include "skrull/cuda/tensor.h"
#include "skrull/planner/layout.h"

namespace skrull::exec {

enum class MessageKind : uint32_t {
  kControl = 1,  // text of an agreement or announcement
  kAllGather = 2,
  kReduceScatter = 3,
  kShift = 4,
  kAbort = 5,    // the sender's pool failed: `dtype` is the code, then text
  kGoodbye = 6,  // the sender leaves without a failure
};

// What a message belongs to, and what its sender called. Both ends of a message
// must have called the same.
struct MessageLabel {
  Block block = {0, 0};   // degree 0: the whole pool, outside streams
  uint64_t sequence = 0;  // of the block's collectives, from 0
  MessageKind kind = MessageKind::kControl;
  DType dtype = DType::kFloat32;  // of a reduce-scatter
  int64_t bytes = 0;              // of the payload

  friend bool operator==(const MessageLabel&, const MessageLabel&) = default;
};

// "all-gather 7 of 4096 bytes", for messages.
std::string LabelText(const MessageLabel& label);

inline constexpr int64_t kHeaderBytes = 40;
inline constexpr int64_t kWordBytes = 4;
inline constexpr int64_t kChunkBytes = 256 << 10;
inline constexpr int64_t kMaxPayloadBytes = int64_t{1} << 38;
inline constexpr int64_t kMaxControlBytes = 1 << 20;
inline constexpr int64_t kMaxAbortBytes = 4096;

inline constexpr uint32_t kNextChunk = 0x6b6e6843;  // "Chnk"
inline constexpr uint32_t kGivenUp = 0x7055764f;

// `out` and `in`: kHeaderBytes.
void EncodeHeader(const MessageLabel& label, char* out);
// Errors: COMM_FAILED for bytes that are no header, or one that no rank of a
// pool of `size` sends.
Result<MessageLabel> DecodeHeader(const char* in, int32_t size);

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_HOST_MESSAGE_H_
