#include "skrull/tests/cuda/host_rank.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "skrull/cuda/cpu/cpu_device.h"
#include "skrull/cuda/cpu/host_types.h"

namespace skrull::exec::testing {
namespace {

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kFloat64};

// Values of many magnitudes, so that the order of a sum shows.
std::string RandomElements(uint64_t seed, DType dtype, int64_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::string bytes(static_cast<size_t>(count * SizeOf(dtype)), '\0');
  WithHostType(dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i) {
      const double exponent = static_cast<double>(random() % 12) - 6;
      const T value = ConvertHost<T>(normal(random) * std::exp2(exponent));
      std::memcpy(bytes.data() + i * SizeOf(dtype), &value, sizeof(value));
    }
  });
  return bytes;
}

std::vector<Block> TestBlocks(int32_t size) {
  std::vector<Block> blocks = {{0, size}};
  if (size >= 3) blocks.push_back({1, size - 1});
  for (int32_t first = 0; first + 2 <= size && size > 2; first += 2) {
    blocks.push_back({first, 2});
  }
  blocks.push_back({size - 1, 1});
  return blocks;
}

// Streams that live as long as it does.
class TestStream {
 public:
  explicit TestStream(CpuDevice* device)
      : device_(device),
        stream_(*device->CreateStream(StreamPriority::kNormal)) {}
  ~TestStream() { device_->DestroyStream(stream_); }
  Stream get() const { return stream_; }

 private:
  CpuDevice* const device_;
  const Stream stream_;
};

}  // namespace

Rendezvous DirectoryRendezvous(const std::string& directory, int32_t rank) {
  return [=](const std::string& offer) -> Result<std::string> {
    const std::string path = directory + "/offer";
    if (rank == 0) {
      std::ofstream(path + ".new", std::ios::binary) << offer;
      std::filesystem::rename(path + ".new", path);
    }
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!std::filesystem::exists(path)) {
      if (std::chrono::steady_clock::now() > limit) {
        return Status(StatusCode::kDeadlineExceeded, "no offer of rank 0");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
}

Result<std::string> RunCollectives(CommunicatorSet* set, uint64_t seed) {
  const std::vector<Block> blocks = TestBlocks(set->size());
  SKRULL_EXEC_RETURN_IF_ERROR(set->Announce(blocks));
  CpuDevice device;
  const TestStream stream(&device);
  std::mt19937_64 random(seed);  // the same draws on all ranks
  std::string received;
  for (int step = 0; step < 60; ++step) {
    const Block block = blocks[random() % blocks.size()];
    const DType dtype = kTypes[random() % 4];
    const uint64_t kind = random() % 3;
    const int64_t count = static_cast<int64_t>(
        random() % 4 == 0 ? random() % 200'000 : random() % 300);
    const uint64_t data_seed = random();
    const int32_t in_block = set->rank() - block.first_rank;
    if (in_block < 0 || in_block >= block.degree) continue;
    const Result<Communicator*> comm = set->Find(block);
    SKRULL_EXEC_RETURN_IF_ERROR(comm.status());
    const int64_t parts = kind == 1 ? block.degree : 1;
    const std::string send = RandomElements(
        data_seed + static_cast<uint64_t>(in_block), dtype, parts * count);
    const int64_t bytes = count * SizeOf(dtype);
    std::string recv(
        static_cast<size_t>((kind == 0 ? block.degree : 1) * bytes), '?');
    Status status;
    if (kind == 0) {
      status =
          (*comm)->AllGather(send.data(), recv.data(), bytes, stream.get());
    } else if (kind == 1) {
      status = (*comm)->ReduceScatter(send.data(), recv.data(), count, dtype,
                                      stream.get());
    } else {
      status = (*comm)->Shift(send.data(), recv.data(), bytes, stream.get());
    }
    SKRULL_EXEC_RETURN_IF_ERROR(status);
    SKRULL_EXEC_RETURN_IF_ERROR(device.Synchronize(stream.get()));
    received += recv;
  }
  return received;
}

Status GatherOnce(CommunicatorSet* set) {
  const Result<Communicator*> comm = set->Find({0, set->size()});
  SKRULL_EXEC_RETURN_IF_ERROR(comm.status());
  CpuDevice device;
  const TestStream stream(&device);
  const char mine = static_cast<char>(set->rank());
  std::string all(static_cast<size_t>(set->size()), '?');
  SKRULL_EXEC_RETURN_IF_ERROR(
      (*comm)->AllGather(&mine, all.data(), 1, stream.get()));
  SKRULL_EXEC_RETURN_IF_ERROR(device.Synchronize(stream.get()));
  for (int32_t r = 0; r < set->size(); ++r) {
    if (all[static_cast<size_t>(r)] != static_cast<char>(r)) {
      return {StatusCode::kInternal, "wrong bytes"};
    }
  }
  return {};
}

}  // namespace skrull::exec::testing
