// Starts, stops and kills a real etcd cluster for tests.
//
// Example:
//   Etcd etcd;                                    // one member
//   Daemon replica({"--store=" + etcd.uri("a")});
//   etcd.Kill(0);
//   etcd.Start(0);                                // on its data
#ifndef SKRULL_TESTS_SUPPORT_ETCD_H_
#define SKRULL_TESTS_SUPPORT_ETCD_H_

#include <memory>
#include <string>
#include <vector>

#include "skrull/tests/support/daemon.h"

namespace skrull::testing {

// True if there is an etcd to start.
bool HaveEtcd();

// A port of 127.0.0.1 that nothing listens on, and that the system gives nobody
// else soon.
int FreePort();

// Not thread-safe.
class Etcd {
 public:
  struct Options {
    int members = 1;
    // Beside 127.0.0.1, where clients reach the members, each at one port.
    std::string other_host = "";
    std::vector<std::string> flags = {};
    bool tls = false;  // then clients are told https, with `flags`' files
  };

  // Starts all members and returns once they have a leader. Throws
  // std::runtime_error with their output if they do not within 60 s.
  Etcd() : Etcd(Options()) {}
  explicit Etcd(const Options& options);

  // "127.0.0.1:PORT,..." of all members; with another host than that.
  std::string endpoints(const std::string& host = "127.0.0.1") const;
  // What --store takes for the keys under `prefix`.
  std::string uri(const std::string& prefix) const {
    return "etcd://" + endpoints() + "/" + prefix;
  }

  // SIGKILL; Start starts the member again on its data, and waits for it.
  void Kill(int member);
  void Start(int member);
  // The same of all, without their data.
  void Wipe();
  // Forgets all revisions but the last one, with etcdctl.
  void Compact();
  // SIGSTOP, which leaves connections open and answers nothing; and SIGCONT.
  void Freeze(int member);
  void Thaw(int member);

 private:
  struct Member {
    int client_port = 0;
    int peer_port = 0;
    std::unique_ptr<Process> process;
  };

  void Spawn(size_t index);
  void WaitReady(size_t index);

  Options options_;
  TempDir directory_;
  std::vector<Member> members_;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SUPPORT_ETCD_H_
