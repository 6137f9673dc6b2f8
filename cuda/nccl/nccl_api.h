// The entry points of NCCL, and of the CUDA runtime, that NcclPool uses: as a
// table that a test can fake where there is neither.
#ifndef SKRULL_CUDA_NCCL_NCCL_API_H_
#define SKRULL_CUDA_NCCL_NCCL_API_H_

#include <array>
#include <cstdint>
#include <string>

#include "skrull/cuda/device.h"
#include "skrull/cuda/tensor.h"

namespace skrull::exec {

// The numbers are NCCL's.
enum class NcclResult : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

using NcclId = std::array<char, 128>;
using NcclComm = void*;    // ncclComm_t
using NcclWindow = void*;  // ncclWindow_t

// Each function is NCCL's of the same name, whose documentation holds; all
// communicators are non-blocking, so that every call on one may return
// kInProgress, and GetAsyncError tells when it is done. Thread-safe as NCCL is:
// one thread at a time for each communicator.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // cudaSetDevice, for this thread.
  virtual NcclResult SetDevice(int32_t device) = 0;

  // The result in words, with NCCL's own last error if there is one.
  virtual std::string ErrorText(NcclResult result) = 0;

  virtual NcclResult GetUniqueId(NcclId* id) = 0;
  // What `comm`, `part` and `window` point to may be written as late as when
  // CommGetAsyncError tells success.
  virtual NcclResult CommInitRank(NcclComm* comm, int32_t size,
                                  const NcclId& id, int32_t rank) = 0;
  // color < 0: this rank is in no part, and *part is null.
  virtual NcclResult CommSplit(NcclComm comm, int32_t color, int32_t key,
                               NcclComm* part) = 0;
  virtual NcclResult CommGetAsyncError(NcclComm comm, NcclResult* state) = 0;
  virtual NcclResult CommFinalize(NcclComm comm) = 0;
  virtual NcclResult CommDestroy(NcclComm comm) = 0;
  virtual NcclResult CommAbort(NcclComm comm) = 0;

  virtual NcclResult MemAlloc(void** data, int64_t bytes) = 0;
  virtual NcclResult MemFree(void* data) = 0;
  // A symmetric window. Success with a null window: this NCCL or this machine
  // has none, and the memory is used as it is.
  virtual NcclResult CommWindowRegister(NcclComm comm, void* data,
                                        int64_t bytes, NcclWindow* window) = 0;
  virtual NcclResult CommWindowDeregister(NcclComm comm, NcclWindow window) = 0;

  virtual NcclResult AllGather(const void* send, void* recv, int64_t bytes,
                               NcclComm comm, Stream stream) = 0;
  virtual NcclResult ReduceScatterSum(const void* send, void* recv,
                                      int64_t count, DType dtype, NcclComm comm,
                                      Stream stream) = 0;
  // ncclSend and ncclRecv in one group.
  virtual NcclResult SendRecv(const void* send, int32_t to, void* recv,
                              int32_t from, int64_t bytes, NcclComm comm,
                              Stream stream) = 0;
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_NCCL_NCCL_API_H_
