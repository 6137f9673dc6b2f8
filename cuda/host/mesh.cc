#include "skrull/cuda/host/mesh.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace skrull::exec {
namespace {

constexpr char kOfferMagic[] = "skrull-host-1";
constexpr size_t kTokenBytes = 16;
constexpr size_t kMaxAddressBytes = 512;
// Connections that have not said who they are yet; the oldest is closed.
constexpr size_t kMaxStrangers = 256;
constexpr std::chrono::seconds kStrangerLimit{10};
constexpr std::chrono::milliseconds kDialPause{20};
// What it is told when it is seated.
constexpr std::string_view kWelcome = "SKRWELC1";

using Token = std::array<unsigned char, kTokenBytes>;

// What the dialling rank says first.
struct Hello {
  std::array<char, 8> magic = {'S', 'K', 'R', 'H', 'E', 'L', 'O', '1'};
  Token token{};
  int32_t rank = 0;
  int32_t size = 0;
  std::array<char, kMaxAddressBytes> address{};  // ends with zeros
};
static_assert(sizeof(Hello) == 32 + kMaxAddressBytes);

// What rank 0 tells of each rank.
using AddressEntry = std::array<char, kMaxAddressBytes>;

std::string HexText(const Token& token) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : token) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool ParseHex(const std::string& text, Token* token) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() != 2 * kTokenBytes) return false;
  for (size_t i = 0; i < kTokenBytes; ++i) {
    const size_t high = kDigits.find(text[2 * i]);
    const size_t low = kDigits.find(text[2 * i + 1]);
    if (high == kDigits.npos || low == kDigits.npos) return false;
    (*token)[i] = static_cast<unsigned char>(high << 4 | low);
  }
  return true;
}

Result<AddressEntry> EntryOf(const std::string& address) {
  AddressEntry entry{};
  if (address.size() >= entry.size()) {
    return InvalidArgument("the address \"" + address + "\" is too long");
  }
  std::copy(address.begin(), address.end(), entry.begin());
  return entry;
}

std::string AddressOf(const AddressEntry& entry) {
  return {entry.data(), strnlen(entry.data(), entry.size())};
}

// Every byte is looked at, so that the time tells nothing about the token.
bool SameToken(const Token& a, const Token& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < kTokenBytes; ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

// Accepts connections until every awaited rank has said hello.
class Door {
 public:
  Door(const MeshOptions& options, const Listener& listener, const Token& token)
      : options_(options), listener_(listener), token_(token) {}

  // Rank r's connection and address go to fds[r] and addresses[r], for the
  // ranks first .. size - 1.
  Status Admit(int32_t first, SteadyTime deadline, std::vector<Fd>* fds,
               std::vector<AddressEntry>* addresses) {
    while (true) {
      const std::string missing = Missing(first, *fds);
      if (missing.empty()) return {};
      if (std::chrono::steady_clock::now() >= deadline) {
        return {StatusCode::kDeadlineExceeded,
                "rank " + std::to_string(options_.rank) +
                    " saw no connection of rank " + missing};
      }
      Await(deadline);
      for (Fd fd = Accept(listener_); fd.open(); fd = Accept(listener_)) {
        strangers_.push_back(
            {.fd = std::move(fd), .since = std::chrono::steady_clock::now()});
        SKRULL_EXEC_RETURN_IF_ERROR(HearAll(first, deadline, fds, addresses));
        if (strangers_.size() > kMaxStrangers) strangers_.pop_front();
      }
      SKRULL_EXEC_RETURN_IF_ERROR(HearAll(first, deadline, fds, addresses));
    }
  }

 private:
  enum class Greeting { kIncomplete, kWrong, kComplete };
  struct Stranger {
    Fd fd;
    SteadyTime since;
    Hello hello{};
    size_t received = 0;
  };

  std::string Missing(int32_t first, const std::vector<Fd>& fds) const {
    std::string missing;
    for (int32_t r = first; r < options_.size; ++r) {
      if (fds[static_cast<size_t>(r)].open()) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    return missing;
  }

  // Hears every stranger out, and lets in or turns away those who are done.
  Status HearAll(int32_t first, SteadyTime deadline, std::vector<Fd>* fds,
                 std::vector<AddressEntry>* addresses) {
    for (auto it = strangers_.begin(); it != strangers_.end();) {
      const Greeting greeting = Hear(&*it);
      if (greeting == Greeting::kComplete) {
        SKRULL_EXEC_RETURN_IF_ERROR(
            Seat(first, deadline, &*it, fds, addresses));
      }
      it = greeting == Greeting::kIncomplete ? std::next(it)
                                             : strangers_.erase(it);
    }
    return {};
  }

  void Await(SteadyTime deadline) {
    std::vector<pollfd> entries = {
        {.fd = listener_.fd.get(), .events = POLLIN, .revents = 0}};
    for (const Stranger& stranger : strangers_) {
      entries.push_back(
          {.fd = stranger.fd.get(), .events = POLLIN, .revents = 0});
      deadline = std::min(deadline, stranger.since + kStrangerLimit);
    }
    (void)poll(entries.data(), entries.size(), PollMilliseconds(deadline));
  }

  Greeting Hear(Stranger* stranger) {
    char* const bytes = reinterpret_cast<char*>(&stranger->hello);
    while (stranger->received < sizeof(Hello)) {
      const ssize_t got = recv(stranger->fd.get(), bytes + stranger->received,
                               sizeof(Hello) - stranger->received, 0);
      if (got > 0) {
        stranger->received += static_cast<size_t>(got);
        continue;
      }
      const bool later =
          got < 0 && (errno == EAGAIN || errno == EINTR) &&
          std::chrono::steady_clock::now() < stranger->since + kStrangerLimit;
      return later ? Greeting::kIncomplete : Greeting::kWrong;
    }
    const Hello& hello = stranger->hello;
    return hello.magic == Hello().magic && SameToken(hello.token, token_)
               ? Greeting::kComplete
               : Greeting::kWrong;
  }

  // One that knows the token is a rank of ours, or meant to be.
  Status Seat(int32_t first, SteadyTime deadline, Stranger* stranger,
              std::vector<Fd>* fds, std::vector<AddressEntry>* addresses) {
    const Hello& hello = stranger->hello;
    const std::string name = "rank " + std::to_string(hello.rank) + " of " +
                             std::to_string(hello.size);
    if (hello.size != options_.size || hello.rank < first ||
        hello.rank >= options_.size) {
      return {StatusCode::kCommFailed,
              name + " connected to rank " + std::to_string(options_.rank) +
                  " of " + std::to_string(options_.size)};
    }
    const auto r = static_cast<size_t>(hello.rank);
    if ((*fds)[r].open()) {
      return {StatusCode::kCommFailed, name + " connected twice"};
    }
    // One that hung up dials again.
    if (!SendAll(stranger->fd, kWelcome.data(), kWelcome.size(), deadline)
             .ok()) {
      return {};
    }
    (*fds)[r] = std::move(stranger->fd);
    (*addresses)[r] = hello.address;
    return {};
  }

  const MeshOptions& options_;
  const Listener& listener_;
  const Token token_;
  std::list<Stranger> strangers_;  // in the order of their coming
};

// `rank` stands for the peer in what the error says.
Status WithPeer(int32_t rank, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), "connecting to rank " + std::to_string(rank) + ": " +
                             status.message()};
}

// A connection whose hello was welcomed. Dials again when it is closed before:
// strangers may have crowded it out.
Result<Fd> Dial(const std::string& address, const Hello& hello,
                SteadyTime deadline) {
  while (true) {
    Result<Fd> fd = Connect(address, deadline);
    if (!fd.ok()) return fd;
    std::array<char, kWelcome.size()> answer{};
    Status status = SendAll(*fd, &hello, sizeof(hello), deadline);
    if (status.ok()) {
      status = ReceiveAll(*fd, answer.data(), answer.size(), deadline);
    }
    if (status.ok()) {
      if (std::string_view(answer.data(), answer.size()) == kWelcome) return fd;
      return Status(StatusCode::kCommFailed,
                    address + " is no rank of a host pool");
    }
    if (std::chrono::steady_clock::now() + kDialPause >= deadline) {
      return Status(StatusCode::kDeadlineExceeded,
                    address + " let nobody in: " + status.message());
    }
    std::this_thread::sleep_for(kDialPause);
  }
}

Result<Token> NewToken() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) !=
      static_cast<ssize_t>(token.size())) {
    return Status(StatusCode::kInternal,
                  "no random bytes: " + ErrorText(errno));
  }
  return token;
}

}  // namespace

Result<std::vector<Fd>> ConnectMesh(const MeshOptions& options,
                                    const Rendezvous& rendezvous) {
  const auto size = static_cast<size_t>(options.size);
  const auto self = static_cast<size_t>(options.rank);
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank " + std::to_string(options.rank) + " of " +
                           std::to_string(options.size));
  }
  Result<Listener> listener = Listen(options.host);
  if (!listener.ok()) return listener.status();
  const Result<AddressEntry> mine = EntryOf(listener->address);
  if (!mine.ok()) return mine.status();
  Hello hello{.rank = options.rank, .size = options.size, .address = *mine};
  std::string offer;
  if (options.rank == 0) {
    const Result<Token> token = NewToken();
    if (!token.ok()) return token.status();
    offer = std::string(kOfferMagic) + " " + HexText(*token) + " " +
            listener->address;
  }
  const Result<std::string> met = rendezvous(offer);
  if (!met.ok()) return met.status();
  std::istringstream words(*met);
  std::string magic, token, root;
  words >> magic >> token >> root;
  if (magic != kOfferMagic || !ParseHex(token, &hello.token) || root.empty()) {
    return Status(StatusCode::kCommFailed,
                  "the rendezvous gave what no rank 0 of a host pool offers");
  }

  const SteadyTime deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          options.time_limit);
  std::vector<Fd> fds(size);
  std::vector<AddressEntry> addresses(size);
  Door door(options, *listener, hello.token);
  if (options.rank == 0) {
    SKRULL_EXEC_RETURN_IF_ERROR(door.Admit(1, deadline, &fds, &addresses));
    for (size_t r = 1; r < size; ++r) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          WithPeer(static_cast<int32_t>(r),
                   SendAll(fds[r], addresses.data(),
                           size * sizeof(AddressEntry), deadline)));
    }
    return fds;
  }
  for (size_t r = 0; r < self; ++r) {
    const auto peer = static_cast<int32_t>(r);
    Result<Fd> fd =
        Dial(r == 0 ? root : AddressOf(addresses[r]), hello, deadline);
    SKRULL_EXEC_RETURN_IF_ERROR(WithPeer(peer, fd.status()));
    fds[r] = *std::move(fd);
    if (r == 0) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          WithPeer(peer, ReceiveAll(fds[0], addresses.data(),
                                    size * sizeof(AddressEntry), deadline)));
    }
  }
  std::vector<AddressEntry> unused(size);
  SKRULL_EXEC_RETURN_IF_ERROR(
      door.Admit(options.rank + 1, deadline, &fds, &unused));
  return fds;
}

}  // namespace skrull::exec
