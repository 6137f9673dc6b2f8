// NcclPool over libskrull_comm_nccl.so and NCCL: one rank. Without a GPU it
// tells so; with one it connects, registers memory, gathers and closes.
#include "skrull/cuda/nccl/nccl_library.h"

#include <cstdio>
#include <string>

#include "cuda_runtime_api.h"
#include "skrull/cuda/in_process/in_process_pool.h"
#include "skrull/cuda/nccl/nccl_pool.h"

namespace skrull::exec {
namespace {

#define SKRULL_REQUIRE(condition, status)                             \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, \
                   (status).ToString().c_str());                      \
      return 1;                                                       \
    }                                                                 \
  } while (false)

Result<std::string> Echo(const std::string& offer) { return offer; }

int OnGpu(NcclPool* pool) {
  const Block all{0, 1};
  const Status announced = pool->Announce({&all, 1});
  SKRULL_REQUIRE(announced.ok(), announced);
  Communicator* const comm = *pool->Find(all);
  Result<Buffer> buffer = comm->Allocate(1 << 20);
  SKRULL_REQUIRE(buffer.ok(), buffer.status());
  const auto failed = [](cudaError_t error) {
    return Status(StatusCode::kDeviceError, cudaGetErrorString(error));
  };
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreate(&stream);
  SKRULL_REQUIRE(error == cudaSuccess, failed(error));
  char* const data = static_cast<char*>(buffer->data());
  error = cudaMemset(data, 7, 16);
  SKRULL_REQUIRE(error == cudaSuccess, failed(error));
  const Status gathered = comm->AllGather(data, data + 16, 16, {stream});
  SKRULL_REQUIRE(gathered.ok(), gathered);
  error = cudaStreamSynchronize(stream);
  SKRULL_REQUIRE(error == cudaSuccess, failed(error));
  char got[16] = {};
  error = cudaMemcpy(got, data + 16, 16, cudaMemcpyDeviceToHost);
  SKRULL_REQUIRE(error == cudaSuccess, failed(error));
  for (const char byte : got) SKRULL_REQUIRE(byte == 7, Status());
  cudaStreamDestroy(stream);
  return 0;
}

int Main() {
  const Result<NcclApi*> opened = OpenNccl(SKRULL_COMM_NCCL_DIR);
  SKRULL_REQUIRE(opened.ok(), opened.status());
  NcclApi* const nccl = *opened;
  NcclId first{}, second{};
  SKRULL_REQUIRE(nccl->GetUniqueId(&first) == NcclResult::kSuccess &&
                     nccl->GetUniqueId(&second) == NcclResult::kSuccess,
                 Status());
  SKRULL_REQUIRE(first != second, Status());
  InProcessPool control(1);
  Result<std::unique_ptr<NcclPool>> pool =
      NcclPool::Create({}, nccl, control.communicators(0), Echo);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    SKRULL_REQUIRE(pool.status().code() == StatusCode::kDeviceError,
                   pool.status());
    std::printf("no GPU: %s\n", pool.status().ToString().c_str());
    return 0;
  }
  SKRULL_REQUIRE(pool.ok(), pool.status());
  return OnGpu(pool->get());
}

}  // namespace
}  // namespace skrull::exec

int main() { return skrull::exec::Main(); }
