// Links over socket pairs: matching, hostile bytes, failures half-way.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "skrull/cuda/host/links.h"
#include "skrull/cuda/host/message.h"

namespace skrull::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Block kBoth{0, 2};

std::pair<Fd, Fd> SocketPair() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                     ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<Fd> ConnectionsOf(int32_t rank, Fd other) {
  std::vector<Fd> connections(2);
  connections[static_cast<size_t>(1 - rank)] = std::move(other);
  return connections;
}

// Two ranks in this process.
struct TwoRanks {
  TwoRanks() {
    auto [a, b] = SocketPair();
    zero = std::make_unique<Links>(0, ConnectionsOf(0, std::move(a)));
    one = std::make_unique<Links>(1, ConnectionsOf(1, std::move(b)));
  }
  std::unique_ptr<Links> zero, one;
};

MessageLabel Gather(uint64_t sequence, int64_t bytes, Block block = kBoth) {
  return {.block = block,
          .sequence = sequence,
          .kind = MessageKind::kAllGather,
          .bytes = bytes};
}

Status Swap(Links* links, const MessageLabel& label, const std::string& mine,
            std::string* theirs, std::chrono::nanoseconds limit = seconds(30)) {
  theirs->assign(static_cast<size_t>(label.bytes), '?');
  const int32_t peer = 1 - links->rank();
  return links->Exchange(label, std::vector<Links::Out>{{peer, mine.data()}},
                         std::vector<Links::In>{{peer, theirs->data(), {}}},
                         limit);
}

std::string RandomText(size_t bytes, unsigned seed) {
  std::minstd_rand random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A link of a rank whose peer is this test, over raw bytes.
struct RawPeer {
  RawPeer() {
    auto [a, b] = SocketPair();
    links = std::make_unique<Links>(0, ConnectionsOf(0, std::move(a)));
    fd = std::move(b);
  }
  void Send(const std::string& bytes) {
    REQUIRE(SendAll(fd, bytes.data(), bytes.size(),
                    std::chrono::steady_clock::now() + seconds(30))
                .ok());
  }
  Status Failure() {
    const auto limit = std::chrono::steady_clock::now() + seconds(30);
    while (links->Poll().ok() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return links->Poll();
  }
  std::unique_ptr<Links> links;
  Fd fd;
};

std::string Header(const MessageLabel& label) {
  std::string header(kHeaderBytes, '\0');
  EncodeHeader(label, header.data());
  return header;
}

TEST_CASE("Message: a header survives the wire, bent ones do not",
          "[host][message]") {
  const MessageLabel label{.block = {2, 4},
                           .sequence = 77,
                           .kind = MessageKind::kReduceScatter,
                           .dtype = DType::kBFloat16,
                           .bytes = 1234};
  char bytes[kHeaderBytes];
  EncodeHeader(label, bytes);
  REQUIRE(DecodeHeader(bytes, 6).ok());
  CHECK(*DecodeHeader(bytes, 6) == label);
  CHECK_FALSE(DecodeHeader(bytes, 5).ok());  // a block beyond the pool
  std::vector<MessageLabel> wrong(9, label);
  wrong[0].bytes = -1;
  wrong[1].bytes = kMaxPayloadBytes + 1;
  wrong[2].block = {-1, 2};
  wrong[3].block = {2, 0};
  wrong[4].block = {2'000'000'000, 2'000'000'000};
  wrong[5].kind = static_cast<MessageKind>(99);
  wrong[6].dtype = static_cast<DType>(99);
  wrong[7] = {.block = {0, 0},
              .kind = MessageKind::kControl,
              .bytes = kMaxControlBytes + 1};
  wrong[8] = {.block = {0, 0}, .kind = MessageKind::kGoodbye, .bytes = 1};
  for (const MessageLabel& bent : wrong) {
    EncodeHeader(bent, bytes);
    CHECK(DecodeHeader(bytes, 6).status().code() == StatusCode::kCommFailed);
  }
  EncodeHeader(label, bytes);
  for (int i = 0; i < 4; ++i) {
    char bent[kHeaderBytes];
    std::memcpy(bent, bytes, sizeof(bent));
    bent[i] = static_cast<char>(bent[i] ^ 1);
    CHECK_FALSE(DecodeHeader(bent, 6).ok());
  }
}

TEST_CASE("Links: messages of all sizes arrive, early or late",
          "[host][links]") {
  TwoRanks ranks;
  uint64_t sequence = 0;
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{39}, kChunkBytes - 1, kChunkBytes,
        kChunkBytes + 1, 3 * kChunkBytes, int64_t{5'000'001}}) {
    for (const int late : {0, 1}) {
      INFO(bytes << " bytes, rank " << late << " is late");
      const std::string a = RandomText(static_cast<size_t>(bytes), 1);
      const std::string b = RandomText(static_cast<size_t>(bytes), 2);
      std::string from_a, from_b;
      Status other;
      Links* const first = late == 0 ? ranks.one.get() : ranks.zero.get();
      Links* const second = late == 0 ? ranks.zero.get() : ranks.one.get();
      {
        const std::jthread thread(
            [&] { other = Swap(first, Gather(sequence, bytes), a, &from_b); });
        // Neither order is wrong; this makes the early one likely.
        std::this_thread::sleep_for(milliseconds(2));
        CHECK(Swap(second, Gather(sequence, bytes), b, &from_a).ok());
      }
      CHECK(other.ok());
      CHECK(from_a == a);
      CHECK(from_b == b);
      ++sequence;
    }
  }
}

TEST_CASE("Links: blocks do not wait for each other", "[host][links]") {
  TwoRanks ranks;
  const MessageLabel labels[] = {
      Gather(0, 100),
      {.block = {0, 0}, .kind = MessageKind::kControl, .bytes = 50}};
  // Each rank comes to the two in another order, one after the other where the
  // peer is later.
  std::string got[2][2];
  Status statuses[2][2];
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t i = 0; i < 2; ++i) {
        const size_t which = rank == 0 ? i : 1 - i;
        threads.emplace_back([&, rank, which] {
          const auto bytes = static_cast<size_t>(labels[which].bytes);
          statuses[rank][which] = Swap(
              rank == 0 ? ranks.zero.get() : ranks.one.get(), labels[which],
              RandomText(bytes, unsigned(rank)), &got[rank][which]);
        });
        std::this_thread::sleep_for(milliseconds(2));
      }
    }
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t which = 0; which < 2; ++which) {
      CHECK(statuses[rank][which].ok());
      CHECK(got[rank][which] ==
            RandomText(static_cast<size_t>(labels[which].bytes),
                       unsigned(1 - rank)));
    }
  }
}

TEST_CASE("Links: what differs fails both ranks, with both calls",
          "[host][links]") {
  struct Row {
    MessageLabel zero, one;
  };
  MessageLabel sum = Gather(0, 8);
  sum.kind = MessageKind::kReduceScatter;
  MessageLabel sum16 = sum;
  sum16.dtype = DType::kFloat16;
  const Row rows[] = {{Gather(0, 8), Gather(0, 16)},
                      {Gather(0, 8), Gather(1, 8)},
                      {Gather(0, 8), sum},
                      {sum, sum16}};
  for (const Row& row : rows) {
    TwoRanks ranks;
    std::string got_zero, got_one;
    const std::string data(64, 'x');
    Status one;
    Status zero;
    {
      const std::jthread thread(
          [&] { one = Swap(ranks.one.get(), row.one, data, &got_one); });
      zero = Swap(ranks.zero.get(), row.zero, data, &got_zero);
    }
    INFO(zero.ToString() << "\n" << one.ToString());
    // One of them may have all it needs before it hears of the other.
    CHECK_FALSE((zero.ok() && one.ok()));
    for (Links* links : {ranks.zero.get(), ranks.one.get()}) {
      const auto limit = std::chrono::steady_clock::now() + seconds(30);
      while (links->Poll().ok() && std::chrono::steady_clock::now() < limit) {
        std::this_thread::yield();
      }
      CHECK(links->Poll().code() == StatusCode::kCommFailed);
      CHECK_THAT(links->Poll().message(), Catch::Contains("ranks differ"));
    }
  }
}

TEST_CASE("Links: a deadline names the rank and ends both", "[host][links]") {
  TwoRanks ranks;
  std::string got;
  const Status status =
      Swap(ranks.zero.get(), Gather(3, 4), "abcd", &got, milliseconds(50));
  CHECK(status.code() == StatusCode::kDeadlineExceeded);
  CHECK_THAT(status.message(),
             Catch::Contains("all-gather 3") && Catch::EndsWith("for rank 1"));
  const Status late = Swap(ranks.one.get(), Gather(3, 4), "abcd", &got);
  CHECK((late.ok() || late == status));  // rank 0's part had been sent
  CHECK(Swap(ranks.one.get(), Gather(4, 4), "abcd", &got) == status);
}

TEST_CASE("Links: a failure half-way through a message reaches the peer",
          "[host][links]") {
  TwoRanks ranks;
  // Much more than the sockets hold, so that it is likely to be under way.
  const std::string large = RandomText(64 << 20, 3);
  std::string got;
  Status status;
  {
    const std::jthread thread([&] {
      status = Swap(ranks.zero.get(),
                    Gather(0, static_cast<int64_t>(large.size())), large, &got);
    });
    std::this_thread::sleep_for(milliseconds(5));
    ranks.zero->Fail({StatusCode::kAborted, "rank 0: a test"});
  }
  CHECK(status == Status(StatusCode::kAborted, "rank 0: a test"));
  const auto limit = std::chrono::steady_clock::now() + seconds(30);
  while (ranks.one->Poll().ok() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  CHECK(ranks.one->Poll() == status);
}

TEST_CASE("Links: a rank that leaves is missed only when it is needed",
          "[host][links]") {
  TwoRanks ranks;
  std::string got, unused;
  Status other;
  {
    const std::jthread thread([&] {
      other = Swap(ranks.one.get(), Gather(0, 4), "last", &unused);
      ranks.one.reset();
    });
    CHECK(Swap(ranks.zero.get(), Gather(0, 4), "abcd", &got).ok());
  }
  CHECK(other.ok());
  CHECK(got == "last");
  CHECK(ranks.zero->Poll().ok());
  const Status status = Swap(ranks.zero.get(), Gather(1, 4), "abcd", &got);
  CHECK(status == Status(StatusCode::kAborted, "rank 1 has left"));
}

TEST_CASE("Links: a connection that ends without a goodbye is a failure",
          "[host][links]") {
  RawPeer peer;
  peer.fd.Close();
  const Status status = peer.Failure();
  CHECK(status.code() == StatusCode::kAborted);
  CHECK_THAT(status.message(), Catch::StartsWith("rank 1 is gone"));
}

TEST_CASE("Links: hostile bytes fail the pool and nothing else",
          "[host][links]") {
  SECTION("noise") {
    for (unsigned seed = 0; seed < 20; ++seed) {
      RawPeer peer;
      peer.Send(RandomText(4096, seed + 1));
      CHECK(peer.Failure().code() == StatusCode::kCommFailed);
    }
  }
  SECTION("a chunk that is none") {
    RawPeer peer;
    peer.Send(Header(Gather(0, 2 * kChunkBytes)) +
              std::string(kChunkBytes, 'x') + "oops");
    CHECK(peer.Failure().code() == StatusCode::kCommFailed);
  }
  SECTION("more than memory holds") {
    RawPeer peer;
    peer.Send(Header(Gather(0, kMaxPayloadBytes)));
    peer.fd.Close();
    const StatusCode code = peer.Failure().code();
    CHECK((code == StatusCode::kOutOfMemory || code == StatusCode::kAborted));
  }
  SECTION("an abort with no known code") {
    RawPeer peer;
    peer.Send(Header({.block = {0, 0},
                      .kind = MessageKind::kAbort,
                      .dtype = static_cast<DType>(0),
                      .bytes = 3}) +
              "bad");
    CHECK(peer.Failure() == Status(StatusCode::kAborted, "bad"));
  }
}

TEST_CASE("Links: a message that its sender gave up is dropped",
          "[host][links]") {
  RawPeer peer;
  std::string given_up(4, '\0');
  std::memcpy(given_up.data(), &kGivenUp, 4);
  peer.Send(Header({.block = {0, 0},
                    .kind = MessageKind::kControl,
                    .bytes = 2 * kChunkBytes}) +
            std::string(kChunkBytes, 'x') + given_up + Header(Gather(0, 4)) +
            "next");
  std::string got;
  CHECK(Swap(peer.links.get(), Gather(0, 4), "mine", &got).ok());
  CHECK(got == "next");
}

}  // namespace
}  // namespace skrull::exec
