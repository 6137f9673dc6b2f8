// Clients that read slowly, fall silent or are killed.
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/tests/e2e/soak/bad_peers.h"
#include "skrull/tests/e2e/soak/soak_clients.h"
#include "skrull/tests/e2e/soak/soak_peer.h"
#include "skrull/tests/support/daemon.h"

namespace skrull::testing {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What the daemon gives a connection to say something.
constexpr seconds kHandshakeTime{20};

}  // namespace

void RunSlowReader(const SoakClient& client, const std::stop_token& stop) {
  Peer peer(client, client.address, 3);
  int64_t step = 0;
  while (!stop.stop_requested()) {
    peer.Renew(client.log);
    grpc::ClientContext context;
    SetTime(&context, kCallTime);
    const auto stream = peer.stub().StreamPlans(&context);
    // Held back by flow control, the writer ends when the stream is dropped.
    std::jthread writer([&stream, &peer, step] {
      // The reader draws nothing meanwhile.
      v1::StreamPlansRequest request;
      for (int64_t i = 0; i < 100; ++i) {
        *request.mutable_batch() = peer.Batch(step + i, 2000);
        if (!stream->Write(request)) return;
      }
    });
    v1::StreamPlansResponse response;
    std::this_thread::sleep_for(milliseconds(700));
    for (int i = 0; i < 8 && !stop.stop_requested(); ++i) {
      if (step % 300 != 0) stream->Read(&response);  // every third reads none
      std::this_thread::sleep_for(milliseconds(100));
    }
    context.TryCancel();
    writer.join();
    while (stream->Read(&response)) {
    }
    client.log->Ended("StreamPlans read slowly", stream->Finish(),
                      {StatusCode::CANCELLED});
    step += 100;
  }
}

void RunHalfOpen(const SoakClient& client, double patience_seconds,
                 const std::stop_token& stop) {
  using Steady = std::chrono::steady_clock;
  const auto patience = std::chrono::duration_cast<Steady::duration>(
      std::chrono::duration<double>(patience_seconds));
  std::vector<std::pair<Steady::time_point, std::unique_ptr<Relay>>> silent;
  Peer peer(client, client.address, 4);
  auto mute = std::make_unique<SilentSocket>(client.address);
  auto mute_since = Steady::now();
  int64_t step = 0;
  while (!stop.stop_requested()) {
    if (Steady::now() - mute_since > kHandshakeTime + patience) {
      if (!mute->Closed()) {
        client.log->Fail("a connection that never spoke is still open");
      }
      mute = std::make_unique<SilentSocket>(client.address);
      mute_since = Steady::now();
    }
    auto relay = std::make_unique<Relay>(client.address);
    {
      peer.Connect(relay->address());
      peer.Renew(client.log);
      grpc::ClientContext context;
      SetTime(&context, kCallTime);
      const auto stream = peer.stub().StreamPlans(&context);
      v1::StreamPlansRequest request;
      for (int i = 0; i < 4; ++i) {
        *request.mutable_batch() = peer.Batch(step++, 2000);
        stream->Write(request);
      }
      Pending<v1::RankPlan> wait;
      SetTime(&wait.context, kCallTime);
      v1::GetRankPlanRequest fetch;
      fetch.set_job(peer.name());
      fetch.set_step(int64_t{1} << 40);
      peer.stub().async()->GetRankPlan(&wait.context, &fetch, &wait.response,
                                       wait.Done());
      peer.Pause(50);
      relay->Freeze();
      context.TryCancel();
      wait.context.TryCancel();
      wait.promise.get_future().wait();
      v1::StreamPlansResponse response;
      while (stream->Read(&response)) {
      }
      stream->Finish();
      peer.Connect(client.address);  // drops the silent connection
    }
    silent.emplace_back(Steady::now(), std::move(relay));
    while (!silent.empty() && Steady::now() - silent[0].first > patience) {
      if (!silent[0].second->Abandoned()) {
        client.log->Fail("a connection that fell silent is still open");
      }
      silent.erase(silent.begin());
    }
    std::this_thread::sleep_for(milliseconds(300));
  }
}

void RunKilled(const SoakClient& client, const std::string& program,
               const std::stop_token& stop) {
  std::mt19937_64 random(static_cast<uint64_t>(client.id));
  int victim = 0;
  while (!stop.stop_requested()) {
    Process process({program, "--victim", client.address,
                     std::to_string(1000 + client.id * 100 + victim++ % 8)});
    std::this_thread::sleep_for(milliseconds(
        std::uniform_int_distribution<int64_t>(200, 1500)(random)));
    process.Kill();
  }
}

void RunVictim(const std::string& address, int id) {
  SoakLog log;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const SoakClient client{
      .address = address,
      .id = id,
      .log = &log,
      .last_generation =
          std::chrono::duration_cast<std::chrono::milliseconds>(now).count()};
  std::jthread trainer(
      [&](const std::stop_token& s) { RunTrainer(client, s); });
  std::jthread canceller(
      [&](const std::stop_token& s) { RunCanceller(client, s); });
  std::jthread reader(
      [&](const std::stop_token& s) { RunSlowReader(client, s); });
  while (true) std::this_thread::sleep_for(seconds(60));
}

}  // namespace skrull::testing
