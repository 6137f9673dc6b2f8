#include "skrull/tests/support/daemon.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace skrull::testing {
namespace {

std::vector<std::string> DaemonArguments(
    const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {DaemonPath(), "--listen_address=127.0.0.1:0",
                                   "--metrics_address=127.0.0.1:0",
                                   "--store=memory"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

// The word after `label` in `text`; empty if there is none, or if it may not be
// complete yet.
std::string WordAfter(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  if (at == std::string::npos) return "";
  const size_t begin = at + label.size();
  const size_t end = text.find_first_of(", \n", begin);
  return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

// Looks again after a moment: a process offers nothing to wait on for its
// output.
void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

}  // namespace

TempDir::TempDir() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "skrull-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("mkdtemp " + pattern + ": " +
                             std::strerror(errno));
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process::Process(const std::vector<std::string>& argv) {
  std::vector<char*> raw;
  for (const std::string& argument : argv) {
    raw.push_back(const_cast<char*>(argument.c_str()));
  }
  raw.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  const std::string log = (directory_.path() / "output").string();
  ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  const int error =
      ::posix_spawnp(&pid_, raw[0], &actions, nullptr, raw.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error(argv[0] + ": " + std::strerror(error));
  }
}

Process::~Process() { Kill(); }

std::string Process::Output() const {
  std::ifstream file(directory_.path() / "output");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void Process::Terminate() {
  if (!reaped_) ::kill(pid_, SIGTERM);
}

void Process::Kill() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  Wait();
}

int Process::Wait() {
  if (reaped_) return exit_code_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

bool Process::Running() {
  if (reaped_) return false;
  siginfo_t info = {};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid == 0;
}

Daemon::Daemon(const std::vector<std::string>& flags)
    : process_(DaemonArguments(flags)) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (address_.empty()) {
    const bool running = process_.Running();
    const std::string output = process_.Output();
    const std::string address = WordAfter(output, "skrulld listening on ");
    const std::string metrics = WordAfter(output, ", metrics on ");
    if (!address.empty() && !metrics.empty()) {
      address_ = address;
      metrics_address_ = metrics;
    } else if (!running) {
      throw std::runtime_error("skrulld ended with " +
                               std::to_string(process_.Wait()) + ": " + output);
    } else if (std::chrono::steady_clock::now() > limit) {
      throw std::runtime_error("skrulld is not ready: " + output);
    } else {
      Pause();
    }
  }
}

std::string Daemon::Scrape() const {
  return HttpGet(metrics_address_, "/metrics");
}

double Daemon::Metric(const std::string& sample) const {
  const std::string page = "\n" + Scrape();
  const std::string line = "\n" + sample + " ";
  const size_t at = page.find(line);
  if (at == std::string::npos) {
    throw std::runtime_error("no sample " + sample + " in:" + page);
  }
  return std::strtod(page.c_str() + at + line.size(), nullptr);
}

std::string DaemonPath() {
  const char* path = std::getenv("SKRULLD");
  return path != nullptr ? path : SKRULL_DAEMON_PATH;
}

std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& method) {
  const size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.substr(0, colon).c_str(),
                    address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    throw std::runtime_error("not an address: " + address);
  }
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  std::string answer;
  if (connected) {
    const std::string request = method + " " + path +
                                " HTTP/1.1\r\nHost: " + address +
                                "\r\nConnection: close\r\n\r\n";
    ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[16384];
    for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  if (fd >= 0) ::close(fd);
  return answer;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const std::string answer = HttpAnswer(address, path);
  const size_t body = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200") || body == std::string::npos) {
    throw std::runtime_error("http://" + address + path + ": " +
                             answer.substr(0, answer.find('\r')));
  }
  return answer.substr(body + 4);
}

}  // namespace skrull::testing
