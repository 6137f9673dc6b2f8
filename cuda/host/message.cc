#include "skrull/cuda/host/message.h"

#include <bit>
#include <cstring>

namespace skrull::exec {
namespace {

// The bytes on the wire are those in memory.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMagic = 0x324b5253;  // "SRK2"

struct Header {
  uint32_t magic;
  uint32_t kind;
  int32_t first_rank;
  int32_t degree;
  uint64_t sequence;
  int64_t bytes;
  int32_t dtype;
  uint32_t zero;
};
static_assert(sizeof(Header) == kHeaderBytes);

int64_t MaxBytes(MessageKind kind) {
  switch (kind) {
    case MessageKind::kControl:
      return kMaxControlBytes;
    case MessageKind::kAbort:
      return kMaxAbortBytes;
    case MessageKind::kGoodbye:
      return 0;
    case MessageKind::kAllGather:
    case MessageKind::kReduceScatter:
    case MessageKind::kShift:
      return kMaxPayloadBytes;
  }
  return -1;  // no such kind
}

bool IsCollective(MessageKind kind) {
  return kind == MessageKind::kAllGather ||
         kind == MessageKind::kReduceScatter || kind == MessageKind::kShift;
}

}  // namespace

std::string LabelText(const MessageLabel& label) {
  const std::string number = std::to_string(label.sequence);
  const std::string bytes = std::to_string(label.bytes) + " bytes";
  switch (label.kind) {
    case MessageKind::kControl:
      return "agreement " + number;
    case MessageKind::kAllGather:
      return "all-gather " + number + " of " + bytes;
    case MessageKind::kReduceScatter:
      return "reduce-scatter " + number + " of " + bytes + " of " +
             std::string(DTypeName(label.dtype));
    case MessageKind::kShift:
      return "shift " + number + " of " + bytes;
    case MessageKind::kAbort:
      return "abort";
    case MessageKind::kGoodbye:
      return "goodbye";
  }
  return "message of an unknown kind";
}

void EncodeHeader(const MessageLabel& label, char* out) {
  const Header header{.magic = kMagic,
                      .kind = static_cast<uint32_t>(label.kind),
                      .first_rank = label.block.first_rank,
                      .degree = label.block.degree,
                      .sequence = label.sequence,
                      .bytes = label.bytes,
                      .dtype = static_cast<int32_t>(label.dtype),
                      .zero = 0};
  std::memcpy(out, &header, sizeof(header));
}

Result<MessageLabel> DecodeHeader(const char* in, int32_t size) {
  Header header;
  std::memcpy(&header, in, sizeof(header));
  const MessageLabel label{.block = {header.first_rank, header.degree},
                           .sequence = header.sequence,
                           .kind = static_cast<MessageKind>(header.kind),
                           .dtype = static_cast<DType>(header.dtype),
                           .bytes = header.bytes};
  const bool in_pool = header.first_rank >= 0 && header.degree >= 1 &&
                       header.degree <= size &&
                       header.first_rank <= size - header.degree;
  const bool whole_pool = header.first_rank == 0 && header.degree == 0;
  if (header.magic != kMagic || header.zero != 0 || header.bytes < 0 ||
      header.bytes > MaxBytes(label.kind) ||
      !(IsCollective(label.kind) ? in_pool : whole_pool) ||
      (label.kind == MessageKind::kReduceScatter && SizeOf(label.dtype) == 0)) {
    return Status(StatusCode::kCommFailed, "bytes that are no message");
  }
  return label;
}

}  // namespace skrull::exec
