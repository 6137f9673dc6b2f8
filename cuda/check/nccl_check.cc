#include "skrull/cuda/check/nccl_check.h"

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "skrull/cuda/check/cuda_access.h"
#include "skrull/cuda/communicator.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/nccl_library.h"
#include "skrull/cuda/nccl/nccl_pool.h"
#include "skrull/cuda/profile/own_stream.h"

namespace skrull::check {
namespace {

using exec::Buffer;
using exec::Result;
using exec::Status;

// The longest is a slot of K and V of 2,048 tokens with 4 heads of 128.
constexpr int64_t kByteCounts[] = {2, 1000, int64_t{4} << 20};
constexpr int64_t kMostBytes = kByteCounts[2];

// bfloat16 numbers from 1 up to 2, with a period that is no power of two.
std::vector<uint16_t> Pattern(int64_t bytes) {
  std::vector<uint16_t> pattern(static_cast<size_t>(bytes) / 2);
  for (size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = static_cast<uint16_t>(0x3F80 + i % 127);
  }
  return pattern;
}

// The only rank of a pool.
class OneRank {
 public:
  explicit OneRank(exec::Device* device)
      : device_(device), stream_(device), control_(1) {}

  Status Connect(exec::NcclApi* api, int32_t ordinal) {
    SKRULL_EXEC_RETURN_IF_ERROR(stream_.Create(exec::StreamPriority::kHigh));
    exec::NcclPoolOptions options;
    options.device = ordinal;
    options.time_limit = kNcclLimit;
    auto made = exec::NcclPool::Create(
        options, api, control_.communicators(0),
        [](const std::string& offer) -> Result<std::string> { return offer; });
    SKRULL_EXEC_RETURN_IF_ERROR(made.status());
    pool_ = *std::move(made);
    const Block all{0, 1};
    SKRULL_EXEC_RETURN_IF_ERROR(pool_->Announce({&all, 1}));
    const Result<exec::Communicator*> found = pool_->Find(all);
    SKRULL_EXEC_RETURN_IF_ERROR(found.status());
    communicator_ = *found;
    return {};
  }

  Status Allocate() {
    for (Buffer* buffer : {&send_, &recv_}) {
      Result<Buffer> made = communicator_->Allocate(kMostBytes);
      SKRULL_EXEC_RETURN_IF_ERROR(made.status());
      *buffer = *std::move(made);
    }
    const std::vector<uint16_t> pattern = Pattern(kMostBytes);
    return device_->Upload(send_.data(), pattern.data(), kMostBytes);
  }

  // Calls `collective`, each of which hands one rank its own bytes back, for
  // every number of bytes.
  Status Moves(
      const std::function<Status(exec::Communicator*, const void*, void*,
                                 int64_t, exec::Stream)>& collective) {
    const std::vector<char> poison(static_cast<size_t>(kMostBytes), '\xFF');
    const std::vector<uint16_t> sent = Pattern(kMostBytes);
    std::vector<char> got(poison.size());
    for (const int64_t bytes : kByteCounts) {
      SKRULL_EXEC_RETURN_IF_ERROR(
          device_->Upload(recv_.data(), poison.data(), kMostBytes));
      SKRULL_EXEC_RETURN_IF_ERROR(collective(
          communicator_, send_.data(), recv_.data(), bytes, stream_.get()));
      SKRULL_EXEC_RETURN_IF_ERROR(device_->Synchronize(stream_.get()));
      SKRULL_EXEC_RETURN_IF_ERROR(pool_->Poll());
      SKRULL_EXEC_RETURN_IF_ERROR(device_->AsCurrent([&] {
        return CopyToHost(got.data(), recv_.data(), kMostBytes,
                          device_->memory());
      }));
      const auto n = static_cast<size_t>(bytes);
      if (std::memcmp(got.data(), sent.data(), n) != 0 ||
          std::memcmp(got.data() + n, poison.data() + n, poison.size() - n) !=
              0) {
        return {exec::StatusCode::kCommFailed,
                "wrong bytes of " + std::to_string(bytes)};
      }
    }
    return {};
  }

  // The cause comes back from every later call, and the pool closes. Buffers go
  // before, so that they are deregistered.
  Status AbortWhileIdle() {
    send_ = Buffer();
    recv_ = Buffer();
    const Status cause(exec::StatusCode::kAborted, "device-check ends");
    pool_->Abort(cause);
    const Status later =
        communicator_->AllGather(nullptr, nullptr, 2, stream_.get());
    for (const Status& status : {pool_->Poll(), later}) {
      if (status.message().find(cause.message()) == std::string::npos) {
        return {exec::StatusCode::kInternal,
                "after an abort: " + status.ToString()};
      }
    }
    pool_.reset();
    return {};
  }

 private:
  exec::Device* const device_;
  profile::OwnStream stream_;
  exec::InProcessPool control_;
  std::unique_ptr<exec::NcclPool> pool_;
  exec::Communicator* communicator_ = nullptr;
  Buffer send_, recv_;  // of the pool, so they go first
};

}  // namespace

void CheckNccl(exec::Device* device, exec::NcclApi* api, int32_t ordinal,
               CheckReport* report) {
  using exec::Communicator;
  using exec::Stream;
  SectionWriter section("nccl", report);
  OneRank rank(device);
  const std::vector<std::pair<const char*, std::function<Status()>>> steps = {
      {"init", [&] { return rank.Connect(api, ordinal); }},
      {"registration", [&] { return rank.Allocate(); }},
      {"all-gather",
       [&] {
         return rank.Moves([](Communicator* c, const void* from, void* to,
                              int64_t bytes, Stream stream) {
           return c->AllGather(from, to, bytes, stream);
         });
       }},
      {"reduce-scatter",
       [&] {
         return rank.Moves([](Communicator* c, const void* from, void* to,
                              int64_t bytes, Stream stream) {
           return c->ReduceScatter(from, to, bytes / 2, exec::DType::kBFloat16,
                                   stream);
         });
       }},
      {"shift",
       [&] {
         return rank.Moves(
             [](Communicator* c, const void* from, void* to, int64_t bytes,
                Stream stream) { return c->Shift(from, to, bytes, stream); });
       }},
      {"abort while idle", [&] { return rank.AbortWhileIdle(); }}};
  for (const auto& [name, step] : steps) {
    const Status status = step();
    if (!status.ok()) return section.Fail(name, status.ToString());
    section.Add(name, {{"ok", true}}, "ok");
  }
}

void CheckInstalledNccl(exec::Device* device, const std::string& directory,
                        int32_t ordinal, CheckReport* report) {
  if (device->memory() != exec::MemoryKind::kCuda) {
    return SectionWriter("nccl", report)
        .Skip("one rank",
              "device " + std::string(device->name()) + " has no CUDA memory");
  }
  const Result<exec::NcclApi*> api = exec::OpenNccl(directory);
  if (!api.ok()) {
    return SectionWriter("nccl", report)
        .Skip("one rank", api.status().ToString());
  }
  CheckNccl(device, *api, ordinal, report);
}

}  // namespace skrull::check
