#include "skrull/server/etcd/etcd_watcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "skrull/server/etcd/etcd_txn.h"
#include "skrull/server/etcd/etcd_value.h"

namespace skrull {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two watches. Short, as callers wait for the watch; an etcd that is
// down costs one refused connection each.
constexpr milliseconds kPause{100};
// A watch that is behind for this long is given up for one at the next member.
constexpr milliseconds kPatience{1'000};

}  // namespace

EtcdWatcher::EtcdWatcher(EtcdClient* client, const EtcdKeys* keys,
                         JobStore::Observer observer)
    : client_(client),
      keys_(keys),
      observer_(std::move(observer)),
      thread_([this] { Run(); }) {}

EtcdWatcher::~EtcdWatcher() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    changed_.SignalAll();
  }
  thread_.join();
}

absl::Status EtcdWatcher::WaitUntil(int64_t revision,
                                    steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  auto patience = steady_clock::now() + kPatience;
  while (reached_ < revision) {
    const auto now = steady_clock::now();
    if (stopping_ || now >= deadline) {
      return client_->Failed(
          absl::StrCat("changes of jobs up to revision ", revision,
                       " did not arrive, ", reached_, " did: ",
                       problem_.ok() ? "the watch is silent"
                                     : std::string(problem_.message())));
    }
    if (now >= patience) {
      if (stream_ != nullptr) stream_->Cancel();
      patience = now + kPatience;
    }
    changed_.WaitUntil(&mutex_, std::min(deadline, patience));
  }
  return absl::OkStatus();
}

void EtcdWatcher::Run() {
  while (true) {
    absl::Status status = ListAll();
    while (!status.ok()) {
      if (!Pause(status)) return;
      status = ListAll();
    }
    status = Follow();
    while (!status.ok()) {
      if (!Pause(status)) return;
      status = Follow();
    }
  }
}

bool EtcdWatcher::Pause(const absl::Status& problem) {
  MutexLock lock(&mutex_);
  problem_ = problem;
  const auto until = steady_clock::now() + kPause;
  while (!stopping_ && steady_clock::now() < until) {
    changed_.WaitUntil(&mutex_, until);
  }
  return !stopping_;
}

void EtcdWatcher::SetReached(int64_t revision) {
  MutexLock lock(&mutex_);
  reached_ = std::max(reached_, revision);
  problem_ = absl::OkStatus();
  changed_.SignalAll();
}

std::optional<etcdserverpb::KeyValue>* EtcdWatcher::Slot(
    const std::string& key, std::map<std::string, Keys>* jobs,
    std::string* name) const {
  for (const bool is_record : {true, false}) {
    const std::string root = is_record ? keys_->Records() : keys_->Epochs();
    if (!absl::StartsWith(key, root)) continue;
    *name = key.substr(root.size());
    Keys& of_job = (*jobs)[*name];
    return is_record ? &of_job.record : &of_job.epoch;
  }
  return nullptr;
}

absl::Status EtcdWatcher::ListAll() {
  absl::StatusOr<etcdserverpb::RangeResponse> all =
      client_->Range(GetPrefix(keys_->Jobs()));
  if (!all.ok()) return all.status();
  std::map<std::string, Keys> found;
  std::string name;
  for (etcdserverpb::KeyValue& kv : *all->mutable_kvs()) {
    auto* const slot = Slot(kv.key(), &found, &name);
    if (slot != nullptr) *slot = std::move(kv);
  }
  const auto revision = [](const std::optional<etcdserverpb::KeyValue>& kv) {
    return kv ? kv->mod_revision() : 0;
  };
  std::set<std::string> differ;
  for (const auto& [job, of_job] : found) {
    const Keys& known = jobs_[job];
    if (revision(known.record) != revision(of_job.record) ||
        revision(known.epoch) != revision(of_job.epoch)) {
      differ.insert(job);
    }
  }
  for (const auto& [job, of_job] : jobs_) {
    if (!found.contains(job)) differ.insert(job);
  }
  std::swap(jobs_, found);
  absl::Status status = Tell(differ, all->header().revision());
  if (status.ok()) {
    SetReached(all->header().revision());
  } else {
    std::swap(jobs_, found);  // to be told again
  }
  return status;
}

absl::Status EtcdWatcher::Follow() {
  etcdserverpb::WatchCreateRequest what;
  what.set_key(keys_->Jobs());
  what.set_range_end(PrefixEnd(keys_->Jobs()));
  std::unique_ptr<EtcdWatchStream> stream;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    what.set_start_revision(reached_ + 1);
  }
  stream = client_->Watch(what);
  {
    MutexLock lock(&mutex_);
    stream_ = stream.get();
    if (stopping_) stream->Cancel();
  }
  absl::Status status = absl::OkStatus();
  bool compacted = false;
  etcdserverpb::WatchResponse response;
  while (status.ok() && !compacted && stream->Read(&response)) {
    compacted = response.compact_revision() != 0;
    if (response.canceled() && !compacted) {
      status = client_->Failed("a watch ended: " + response.cancel_reason());
    } else if (!compacted) {
      status = Apply(response);
    }
  }
  {
    MutexLock lock(&mutex_);
    stream_ = nullptr;
  }
  stream->Cancel();
  const grpc::Status end = stream->Finish();
  if (compacted) return absl::OkStatus();
  if (!status.ok()) return status;
  return client_->Failed("a watch ended: " + end.error_message());
}

absl::Status EtcdWatcher::Apply(const etcdserverpb::WatchResponse& response) {
  // Events come in order of their revisions, all of one in one answer.
  std::set<std::string> names;
  for (int i = 0; i < response.events_size(); ++i) {
    const etcdserverpb::Event& event = response.events(i);
    std::string name;
    auto* const slot = Slot(event.kv().key(), &jobs_, &name);
    if (slot != nullptr) {
      names.insert(name);
      if (event.type() == etcdserverpb::Event::DELETE) {
        slot->reset();
      } else {
        *slot = event.kv();
      }
    }
    const int64_t revision = event.kv().mod_revision();
    if (i + 1 < response.events_size() &&
        response.events(i + 1).kv().mod_revision() == revision) {
      continue;
    }
    const absl::Status status = Tell(names, revision);
    if (!status.ok()) return status;
    names.clear();
    SetReached(revision);
  }
  return absl::OkStatus();
}

absl::Status EtcdWatcher::Tell(const std::set<std::string>& names,
                               int64_t revision) {
  for (const std::string& name : names) {
    const Keys& keys = jobs_[name];
    JobChange change{.name = name, .record = {}, .version = revision};
    if (keys.record && keys.epoch) {
      absl::StatusOr<JobRecord> record =
          JobRecordOf(*client_, name, *keys.record, *keys.epoch);
      if (!record.ok()) return record.status();
      change.version = record->version;
      change.record = *std::move(record);
    } else {
      jobs_.erase(name);
    }
    observer_(change);
  }
  return absl::OkStatus();
}

}  // namespace skrull
