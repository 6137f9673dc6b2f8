#include "skrull/server/etcd/etcd_race.h"

#include <algorithm>
#include <thread>

namespace skrull {
namespace {

using std::chrono::microseconds;

// About one transaction, and many of them.
constexpr microseconds kFirstWait{1'000};
constexpr microseconds kLongestWait{64'000};

}  // namespace

EtcdRace::EtcdRace(const EtcdClient* client)
    : client_(client),
      deadline_(std::chrono::steady_clock::now() + client->options().timeout),
      random_(std::random_device{}()) {}

bool EtcdRace::Again() {
  if (wait_ > microseconds(0)) {
    const auto wait =
        std::uniform_int_distribution<int64_t>(0, wait_.count())(random_);
    std::this_thread::sleep_for(microseconds(wait));
  }
  wait_ = std::clamp(2 * wait_, kFirstWait, kLongestWait);
  return std::chrono::steady_clock::now() < deadline_;
}

absl::Status EtcdRace::Lost(const std::string& what) const {
  return client_->Failed("others changed " + what +
                         " with every attempt to change it");
}

}  // namespace skrull
