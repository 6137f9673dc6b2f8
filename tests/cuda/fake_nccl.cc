#include "skrull/tests/cuda/fake_nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "skrull/cuda/cpu/rank_sum.h"

namespace skrull::exec::testing {

using Lock = std::lock_guard<std::mutex>;

namespace {

thread_local bool has_selected_device = false;

}  // namespace

struct FakeComm {
  FakeNccl::Group* group = nullptr;
  int32_t rank = 0;       // in the group
  int32_t pool_rank = 0;  // in the first group
  size_t next_round = 0;
  FakeNccl::Round* current = nullptr;  // in progress
  NcclComm* handle = nullptr;          // to be written when it is done
};

FakeNccl::FakeNccl() = default;
FakeNccl::~FakeNccl() = default;

void FakeNccl::Break(const std::string& name, NcclResult result) {
  const Lock lock(mutex_);
  broken_[name] = result;
}

void FakeNccl::SetAsyncError(int32_t rank, NcclResult result) {
  const Lock lock(mutex_);
  async_errors_[rank] = result;
}

void FakeNccl::HaveNoWindows() {
  const Lock lock(mutex_);
  windows_exist_ = false;
}

FakeNccl::Counts FakeNccl::counts() {
  const Lock lock(mutex_);
  return counts_;
}

std::vector<std::string> FakeNccl::splits() {
  const Lock lock(mutex_);
  return splits_;
}

FakeComm* FakeNccl::Find(NcclComm comm) {
  const auto found = comms_.find(comm);
  if (found != comms_.end()) return found->second.get();
  ++counts_.misuses;
  return nullptr;
}

bool FakeNccl::Broken(const std::string& name, NcclResult* result) {
  const auto found = broken_.find(name);
  if (found == broken_.end()) return false;
  *result = found->second;
  return true;
}

std::set<int32_t> FakeNccl::devices() {
  const Lock lock(mutex_);
  return devices_;
}

NcclResult FakeNccl::SetDevice(int32_t device) {
  const Lock lock(mutex_);
  devices_.insert(device);
  has_selected_device = true;
  return NcclResult::kSuccess;
}

std::string FakeNccl::ErrorText(NcclResult result) {
  return "fake error " + std::to_string(static_cast<int>(result));
}

NcclResult FakeNccl::GetUniqueId(NcclId* id) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("GetUniqueId", &result)) return result;
  id->fill(static_cast<char>(++ids_));
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::CommInitRank(NcclComm* comm, int32_t size,
                                  const NcclId& id, int32_t rank) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("CommInitRank", &result)) return result;
  if (!has_selected_device) ++counts_.misuses;
  Group*& group = by_id_[id];
  if (group == nullptr) {
    groups_.push_back(std::make_unique<Group>());
    group = groups_.back().get();
    group->size = size;
  }
  auto made = std::make_unique<FakeComm>();
  made->group = group;
  made->rank = made->pool_rank = rank;
  FakeComm* const raw = made.get();
  comms_[raw] = std::move(made);
  ++counts_.communicators;
  // NCCL gives this handle at once: without it nobody could ask.
  *comm = raw;
  return Enter(raw, {.what = "init"});
}

NcclResult FakeNccl::CommSplit(NcclComm comm, int32_t color, int32_t key,
                               NcclComm* part) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("CommSplit", &result)) return result;
  FakeComm* const parent = Find(comm);
  if (parent == nullptr) return NcclResult::kInvalidArgument;
  *part = nullptr;
  parent->handle = part;
  return Enter(parent, {.what = "split", .color = color, .key = key});
}

NcclResult FakeNccl::CommGetAsyncError(NcclComm comm, NcclResult* state) {
  const Lock lock(mutex_);
  FakeComm* const found = Find(comm);
  if (found == nullptr) return NcclResult::kInvalidArgument;
  *state = NcclResult::kSuccess;
  if (const auto error = async_errors_.find(found->pool_rank);
      error != async_errors_.end()) {
    *state = error->second;
    return NcclResult::kSuccess;
  }
  if (found->current == nullptr) return NcclResult::kSuccess;
  if (!found->current->done || ++asked_ % 2 == 0) {
    *state = NcclResult::kInProgress;
    return NcclResult::kSuccess;
  }
  if (found->handle != nullptr) {
    const auto part = found->current->parts.find(found->rank);
    if (part != found->current->parts.end()) *found->handle = part->second;
    found->handle = nullptr;
  }
  found->current = nullptr;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::CommFinalize(NcclComm comm) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("CommFinalize", &result)) return result;
  return Find(comm) == nullptr ? NcclResult::kInvalidArgument
                               : NcclResult::kSuccess;
}

NcclResult FakeNccl::Drop(NcclComm comm, int* count) {
  const Lock lock(mutex_);
  if (Find(comm) == nullptr) return NcclResult::kInvalidArgument;
  comms_.erase(comm);
  --counts_.communicators;
  ++*count;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::CommDestroy(NcclComm comm) {
  return Drop(comm, &counts_.destroyed);
}
NcclResult FakeNccl::CommAbort(NcclComm comm) {
  return Drop(comm, &counts_.aborted);
}

NcclResult FakeNccl::MemAlloc(void** data, int64_t bytes) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("MemAlloc", &result)) return result;
  if (!has_selected_device) ++counts_.misuses;
  *data = std::aligned_alloc(4096, static_cast<size_t>(bytes));
  ++counts_.buffers;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::MemFree(void* data) {
  const Lock lock(mutex_);
  std::free(data);
  --counts_.buffers;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::CommWindowRegister(NcclComm comm, void* data,
                                        int64_t bytes, NcclWindow* window) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("CommWindowRegister", &result)) return result;
  FakeComm* const found = Find(comm);
  if (found == nullptr) return NcclResult::kInvalidArgument;
  if (bytes % 4096 != 0) ++counts_.misuses;
  if (windows_exist_) {
    ++counts_.windows;
    *window = data;
  }
  return Enter(found, {.what = "register " + std::to_string(bytes)});
}

NcclResult FakeNccl::CommWindowDeregister(NcclComm comm, NcclWindow) {
  const Lock lock(mutex_);
  if (Find(comm) == nullptr) return NcclResult::kInvalidArgument;
  --counts_.windows;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::AllGather(const void* send, void* recv, int64_t bytes,
                               NcclComm comm, Stream) {
  const Lock lock(mutex_);
  NcclResult result{};
  if (Broken("AllGather", &result)) return result;
  FakeComm* const found = Find(comm);
  if (found == nullptr) return NcclResult::kInvalidArgument;
  return Enter(
      found,
      {.what = "gather " + std::to_string(bytes), .send = send, .recv = recv});
}

NcclResult FakeNccl::ReduceScatterSum(const void* send, void* recv,
                                      int64_t count, DType dtype, NcclComm comm,
                                      Stream) {
  const Lock lock(mutex_);
  FakeComm* const found = Find(comm);
  if (found == nullptr) return NcclResult::kInvalidArgument;
  return Enter(found, {.what = "sum " + std::to_string(count) + " " +
                               std::to_string(static_cast<int>(dtype)),
                       .send = send,
                       .recv = recv});
}

NcclResult FakeNccl::SendRecv(const void* send, int32_t to, void* recv,
                              int32_t from, int64_t bytes, NcclComm comm,
                              Stream) {
  const Lock lock(mutex_);
  FakeComm* const found = Find(comm);
  if (found == nullptr) return NcclResult::kInvalidArgument;
  const int32_t size = found->group->size;
  if (to != (found->rank + 1) % size ||
      from != (found->rank + size - 1) % size) {
    ++counts_.misuses;
  }
  return Enter(
      found,
      {.what = "shift " + std::to_string(bytes), .send = send, .recv = recv});
}

NcclResult FakeNccl::Enter(FakeComm* comm, Call call) {
  if (comm->current != nullptr) ++counts_.misuses;
  Group* const group = comm->group;
  const size_t number = comm->next_round++;
  if (number == group->rounds.size()) {
    group->rounds.push_back(std::make_unique<Round>());
  }
  Round* const round = group->rounds[number].get();
  comm->current = round;
  round->calls[comm->rank] = std::move(call);
  if (static_cast<int32_t>(round->calls.size()) == group->size) {
    Finish(group, round);
  }
  return NcclResult::kInProgress;
}

void FakeNccl::Finish(Group* group, Round* round) {
  round->done = true;
  std::istringstream words(round->calls.at(0).what);
  std::string kind;
  int64_t number = 0;
  int dtype = 0;
  words >> kind >> number >> dtype;
  std::vector<const void*> sends;
  for (const auto& [rank, call] : round->calls) {
    if (call.what != round->calls.at(0).what) ++counts_.misuses;
    sends.push_back(call.send);
  }
  std::string split;
  std::map<int32_t, std::set<std::pair<int32_t, int32_t>>> colors;
  for (const auto& [rank, call] : round->calls) {
    char* const to = static_cast<char*>(call.recv);
    const auto bytes = static_cast<size_t>(number);
    if (kind == "gather") {
      for (size_t r = 0; r < sends.size(); ++r) {
        std::memcpy(to + r * bytes, sends[r], bytes);
      }
    } else if (kind == "sum") {
      WithHostType(static_cast<DType>(dtype), [&]<class T>(T) {
        SumRanks<T>(sends, rank * number, number, to);
      });
    } else if (kind == "shift") {
      const auto from =
          static_cast<size_t>(rank + group->size - 1) % sends.size();
      std::memcpy(to, sends[from], bytes);
    } else if (kind == "split") {
      split += (rank == 0 ? "" : " ") + std::to_string(call.color) + "/" +
               std::to_string(call.key);
      if (call.color >= 0) colors[call.color].insert({call.key, rank});
    }
  }
  if (kind == "split") splits_.push_back(split);
  for (const auto& [color, members] : colors) {
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->size = static_cast<int32_t>(members.size());
    int32_t next = 0;
    for (const auto& [key, rank] : members) {
      auto made = std::make_unique<FakeComm>();
      made->group = groups_.back().get();
      made->rank = next++;
      made->pool_rank = rank;
      round->parts[rank] = made.get();
      comms_[made.get()] = std::move(made);
      ++counts_.communicators;
    }
  }
}

}  // namespace skrull::exec::testing
