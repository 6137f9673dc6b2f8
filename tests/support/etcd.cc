#include "skrull/tests/support/etcd.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace skrull::testing {
namespace {

// Looks again after a moment: a process offers nothing to wait on.
void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

std::string Url(const std::string& scheme, const std::string& host, int port) {
  return scheme + "://" + host + ":" + std::to_string(port);
}

bool Accepts(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool connected =
      ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return connected;
}

// Whether all threads of the process have stopped: a signal takes its time.
bool IsStopped(pid_t pid) {
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "status");
    std::string line;
    while (std::getline(file, line) && !line.starts_with("State:")) {
    }
    if (line.find("T (stopped)") == std::string::npos) return false;
  }
  return true;
}

}  // namespace

bool HaveEtcd() { return std::string(SKRULL_ETCD_PATH) != ""; }

int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 ||
      ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  ::close(fd);
  return ntohs(address.sin_port);
}

Etcd::Etcd(const Options& options) : options_(options) {
  members_.resize(static_cast<size_t>(options.members));
  for (Member& member : members_) {
    member.client_port = FreePort();
    member.peer_port = FreePort();
  }
  for (size_t i = 0; i < members_.size(); ++i) Spawn(i);
  for (size_t i = 0; i < members_.size(); ++i) WaitReady(i);
}

std::string Etcd::endpoints(const std::string& host) const {
  std::string list;
  for (const Member& member : members_) {
    list += (list.empty() ? "" : ",") + host + ":" +
            std::to_string(member.client_port);
  }
  return list;
}

void Etcd::Spawn(size_t index) {
  const std::string scheme = options_.tls ? "https" : "http";
  Member& member = members_[index];
  const std::string client = Url(scheme, "127.0.0.1", member.client_port);
  const std::string peer = Url("http", "127.0.0.1", member.peer_port);
  std::string listen = client;
  if (!options_.other_host.empty()) {
    listen += "," + Url(scheme, options_.other_host, member.client_port);
  }
  std::string cluster;
  for (size_t i = 0; i < members_.size(); ++i) {
    cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" +
               Url("http", "127.0.0.1", members_[i].peer_port);
  }
  const std::string name = "m" + std::to_string(index);
  std::vector<std::string> argv = {
      SKRULL_ETCD_PATH, "--name=" + name,
      "--data-dir=" + (directory_.path() / name).string(),
      "--listen-client-urls=" + listen, "--advertise-client-urls=" + client,
      "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
      "--initial-cluster=" + cluster, "--initial-cluster-token=skrull-test",
      "--logger=zap", "--log-level=warn",
      // Machines that run tests are busy.
      "--heartbeat-interval=200", "--election-timeout=2000"};
  argv.insert(argv.end(), options_.flags.begin(), options_.flags.end());
  member.process = std::make_unique<Process>(argv);
}

void Etcd::WaitReady(size_t index) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Member& member = members_[index];
  while (true) {
    // A member accepts clients before it knows a leader.
    if (options_.tls && Accepts(member.client_port)) return;
    if (!options_.tls) {
      try {
        const std::string health = HttpGet(
            "127.0.0.1:" + std::to_string(member.client_port), "/health");
        if (health.find("true") != std::string::npos) return;
      } catch (const std::runtime_error&) {
      }
    }
    if (!member.process->Running() ||
        std::chrono::steady_clock::now() > limit) {
      throw std::runtime_error("etcd is not ready: " +
                               member.process->Output());
    }
    Pause();
  }
}

void Etcd::Kill(int member) {
  members_[static_cast<size_t>(member)].process->Kill();
}

void Etcd::Start(int member) {
  Spawn(static_cast<size_t>(member));
  WaitReady(static_cast<size_t>(member));
}

void Etcd::Wipe() {
  for (Member& member : members_) member.process->Kill();
  for (size_t i = 0; i < members_.size(); ++i) {
    std::filesystem::remove_all(directory_.path() / ("m" + std::to_string(i)));
  }
  for (size_t i = 0; i < members_.size(); ++i) Spawn(i);
  for (size_t i = 0; i < members_.size(); ++i) WaitReady(i);
}

void Etcd::Compact() {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {SKRULL_ETCDCTL_PATH, "--endpoints=" + endpoints()});
    Process etcdctl(arguments);
    const int code = etcdctl.Wait();
    if (code != 0) throw std::runtime_error("etcdctl: " + etcdctl.Output());
    return etcdctl.Output();
  };
  const std::string label = "\"revision\":";
  const std::string state = run({"get", "none", "--write-out=json"});
  const size_t at = state.find(label);
  if (at == std::string::npos) throw std::runtime_error("etcdctl: " + state);
  const int64_t revision = std::stoll(state.substr(at + label.size()));
  run({"compact", std::to_string(revision)});
}

void Etcd::Freeze(int member) {
  const pid_t pid = members_[static_cast<size_t>(member)].process->pid();
  ::kill(pid, SIGSTOP);
  while (!IsStopped(pid)) Pause();
}

void Etcd::Thaw(int member) {
  ::kill(members_[static_cast<size_t>(member)].process->pid(), SIGCONT);
}

}  // namespace skrull::testing
