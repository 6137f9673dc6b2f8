// Peers that a network gives a server besides polite ones.
#ifndef SKRULL_TESTS_E2E_SOAK_BAD_PEERS_H_
#define SKRULL_TESTS_E2E_SOAK_BAD_PEERS_H_

#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace skrull::testing {

// A TCP relay on a free loopback port, whose two ends can be cut without either
// side being told: the sockets stay open and nobody reads them, as when a host
// loses its power or a firewall forgets a connection.
class Relay {
 public:
  // Connections are passed on to `target`, "127.0.0.1:PORT". Throws
  // std::runtime_error if there is no port.
  explicit Relay(const std::string& target);
  // Closes all sockets.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }

  // Passes nothing on from here on, in either direction. Call it once.
  void Freeze() { thread_ = std::jthread(); }

  // True if the target has closed all connections that were passed on to it.
  // What it sent before that is read. REQUIRES: frozen.
  bool Abandoned() const;

 private:
  void Run(const std::stop_token& stop);
  void Accept();

  struct Pair {
    int client = -1;
    int target = -1;
  };

  const std::string target_;
  std::string address_;
  int listener_ = -1;
  std::vector<Pair> pairs_;  // of the thread, until it has ended
  std::jthread thread_;
};

// A socket that is connected to "127.0.0.1:PORT" and sends nothing, ever.
class SilentSocket {
 public:
  // Throws std::runtime_error if it cannot connect.
  explicit SilentSocket(const std::string& address);
  ~SilentSocket();
  SilentSocket(const SilentSocket&) = delete;
  SilentSocket& operator=(const SilentSocket&) = delete;

  // True once the peer has closed the connection. What the peer sent before is
  // read.
  bool Closed();

 private:
  int fd_ = -1;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_E2E_SOAK_BAD_PEERS_H_
