#include "skrull/cuda/host/link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace skrull::exec {
namespace {

constexpr int64_t kBytesPerTurn = 4 << 20;

const char* Zeros() {
  static const std::array<char, kChunkBytes> zeros{};
  return zeros.data();
}

}  // namespace

Status Link::Enqueue(const Send& send, std::shared_ptr<std::string> owned) {
  if (peer_left_ || !connected()) return Left();
  sends_.push_back({.label = send.label,
                    .data = static_cast<const char*>(send.data),
                    .open = send.open,
                    .owned = std::move(owned)});
  return {};
}

bool Link::NextPiece() {
  Outgoing& front = sends_.front();
  const int64_t total = front.label.bytes;
  if (!started_) {
    started_ = true;
    EncodeHeader(front.label, prefix_.data());
    prefix_bytes_ = kHeaderBytes;
  } else if (front.given_up && front.chunked < total) {
    front.chunked = total;  // the word is the end
    std::memcpy(prefix_.data(), &kGivenUp, sizeof(kGivenUp));
    prefix_bytes_ = kWordBytes;
    prefix_sent_ = 0;
    return true;
  } else if (front.chunked < total) {
    std::memcpy(prefix_.data(), &kNextChunk, sizeof(kNextChunk));
    prefix_bytes_ = kWordBytes;
  } else {
    return false;
  }
  prefix_sent_ = 0;
  chunk_left_ = std::min(kChunkBytes, total - front.chunked);
  chunk_ = front.data == nullptr ? Zeros() : front.data + front.chunked;
  front.chunked += chunk_left_;
  return true;
}

Status Link::Write() {
  while (connected() && !sends_.empty()) {
    if (prefix_sent_ == prefix_bytes_ && chunk_left_ == 0 && !NextPiece()) {
      if (sends_.front().open != nullptr) --*sends_.front().open;
      sends_.pop_front();
      started_ = false;
      continue;
    }
    iovec parts[2] = {
        {prefix_.data() + prefix_sent_,
         static_cast<size_t>(prefix_bytes_ - prefix_sent_)},
        {const_cast<char*>(chunk_), static_cast<size_t>(chunk_left_)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      const bool missed = std::any_of(
          sends_.begin(), sends_.end(),
          [](const Outgoing& send) { return send.open != nullptr; });
      sends_.clear();
      started_ = false;
      return peer_left_ && missed ? Left() : Status();
    }
    const int64_t of_prefix =
        std::min<int64_t>(sent, prefix_bytes_ - prefix_sent_);
    prefix_sent_ += of_prefix;
    chunk_ += sent - of_prefix;
    chunk_left_ -= sent - of_prefix;
  }
  return {};
}

Status Link::Receive(const Post& post) {
  const Block block = post.label.block;
  const auto early =
      std::find_if(inbox_.begin(), inbox_.end(), [&](const Incoming& message) {
        return !message.matched && message.label.block == block;
      });
  if (early == inbox_.end()) {
    if (peer_left_) return Left();
    posts_.emplace(block, post);
    return {};
  }
  SKRULL_EXEC_RETURN_IF_ERROR(Match(post, &*early));
  posts_.emplace(block, post);
  if (early != current_) Complete(early);
  return {};
}

Status Link::Match(const Post& post, Incoming* message) {
  MessageLabel wanted = post.label;
  if (wanted.kind == MessageKind::kControl) wanted.bytes = message->label.bytes;
  if (wanted != message->label) {
    return {StatusCode::kCommFailed,
            "ranks differ: rank " + std::to_string(peer_) + " came with " +
                LabelText(message->label) + ", this rank with " +
                LabelText(wanted)};
  }
  message->matched = true;
  message->post = post;
  if (post.text != nullptr) {
    post.text->resize(static_cast<size_t>(message->label.bytes));
    message->post.data = post.text->data();
  }
  if (message->received > 0) {
    std::memcpy(message->post.data, message->kept.get(),
                static_cast<size_t>(message->received));
  }
  message->to = static_cast<char*>(message->post.data);
  message->kept.reset();
  return {};
}

void Link::Complete(Inbox::iterator message) {
  posts_.erase(message->label.block);
  --*message->post.open;
  inbox_.erase(message);
}

Status Link::Read() {
  for (int64_t budget = kBytesPerTurn; budget > 0 && connected();) {
    if (given_up_) {
      static thread_local std::array<char, 1 << 16> nowhere;
      const Result<int64_t> dropped = ReadSome(nowhere.data(), nowhere.size());
      SKRULL_EXEC_RETURN_IF_ERROR(dropped.status());
      if (*dropped == 0) return {};
      budget -= *dropped;
      continue;
    }
    if (current_ != inbox_.end() && piece_left_ > 0) {
      Incoming& message = *current_;
      const Result<int64_t> read =
          ReadSome(message.to + message.received, piece_left_);
      SKRULL_EXEC_RETURN_IF_ERROR(read.status());
      if (*read == 0) return {};
      message.received += *read;
      piece_left_ -= *read;
      budget -= *read;
    } else {
      const int64_t wanted =
          current_ == inbox_.end() ? kHeaderBytes : kWordBytes;
      const Result<int64_t> read =
          ReadSome(head_.data() + head_received_, wanted - head_received_);
      SKRULL_EXEC_RETURN_IF_ERROR(read.status());
      if (*read == 0) return {};
      head_received_ += *read;
      budget -= *read;
      if (head_received_ < wanted) continue;
      head_received_ = 0;
      if (current_ == inbox_.end()) {
        SKRULL_EXEC_RETURN_IF_ERROR(OnHeader());
      } else {
        uint32_t word = 0;
        std::memcpy(&word, head_.data(), sizeof(word));
        if (word == kGivenUp) {
          // The reason follows. What is posted waits for it in vain, as it
          // should: the failure ends it.
          if (!current_->matched) inbox_.erase(current_);
          current_ = inbox_.end();
          continue;
        }
        if (word != kNextChunk) {
          return {
              StatusCode::kCommFailed,
              "bytes that are no chunk, from rank " + std::to_string(peer_)};
        }
        piece_left_ =
            std::min(kChunkBytes, current_->label.bytes - current_->received);
      }
    }
    if (current_ != inbox_.end() && piece_left_ == 0 &&
        current_->received == current_->label.bytes) {
      SKRULL_EXEC_RETURN_IF_ERROR(OnMessage());
    }
  }
  return {};
}

Status Link::OnHeader() {
  Result<MessageLabel> label = DecodeHeader(head_.data(), size_);
  if (!label.ok()) {
    return {label.status().code(),
            label.status().message() + ", from rank " + std::to_string(peer_)};
  }
  Incoming message;
  message.label = *label;
  const bool posted =
      label->kind != MessageKind::kAbort &&
      label->kind != MessageKind::kGoodbye && posts_.contains(label->block) &&
      std::none_of(inbox_.begin(), inbox_.end(), [&](const Incoming& other) {
        return other.label.block == label->block;
      });
  if (posted) {
    SKRULL_EXEC_RETURN_IF_ERROR(Match(posts_.at(label->block), &message));
  } else if (label->bytes > 0) {
    message.kept.reset(
        new (std::nothrow) char[static_cast<size_t>(label->bytes)]);
    if (message.kept == nullptr) {
      return {StatusCode::kOutOfMemory, "no memory for " + LabelText(*label) +
                                            " of rank " +
                                            std::to_string(peer_)};
    }
    message.to = message.kept.get();
  }
  inbox_.push_back(std::move(message));
  current_ = std::prev(inbox_.end());
  piece_left_ = std::min(kChunkBytes, label->bytes);
  return {};
}

Status Link::OnMessage() {
  const auto message = current_;
  current_ = inbox_.end();
  switch (message->label.kind) {
    case MessageKind::kAbort: {
      const auto code = static_cast<StatusCode>(message->label.dtype);
      const bool known =
          code != StatusCode::kOk && StatusCodeName(code) != "UNKNOWN";
      return {known ? code : StatusCode::kAborted,
              std::string(message->kept.get(),
                          static_cast<size_t>(message->received))};
    }
    case MessageKind::kGoodbye: {
      inbox_.erase(message);
      peer_left_ = true;
      return posts_.empty() ? Status() : Left();
    }
    default:
      if (message->matched) Complete(message);
      return {};
  }
}

Result<int64_t> Link::ReadSome(void* to, int64_t bytes) {
  while (true) {
    const ssize_t read = recv(fd(), to, static_cast<size_t>(bytes), 0);
    if (read > 0) return int64_t{read};
    if (read == 0 ||
        (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      const Status broken = Broken(read == 0 ? 0 : errno);
      const bool expected = peer_left_ || given_up_;
      fd_.Close();
      if (expected) return int64_t{0};
      return broken;
    }
    if (errno != EINTR) return int64_t{0};
  }
}

void Link::GiveUp() noexcept {
  given_up_ = true;
  posts_.clear();
  inbox_.clear();
  current_ = inbox_.end();
  if (sends_.empty()) return;
  if (!started_) {
    sends_.clear();
    return;
  }
  while (sends_.size() > 1) sends_.pop_back();
  Outgoing& front = sends_.front();
  if (front.owned != nullptr) {  // its bytes stay
    front.open = nullptr;
    return;
  }
  front.data = nullptr;
  front.open = nullptr;
  front.given_up = true;
  if (chunk_left_ > 0) chunk_ = Zeros();
}

Status Link::Left() const {
  return {StatusCode::kAborted, "rank " + std::to_string(peer_) + " has left"};
}

Status Link::Broken(int error) const {
  return {StatusCode::kAborted,
          "rank " + std::to_string(peer_) + " is gone: its connection " +
              (error == 0 ? "was closed" : "broke: " + ErrorText(error))};
}

}  // namespace skrull::exec
