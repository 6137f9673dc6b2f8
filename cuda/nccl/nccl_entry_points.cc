// The shared object libskrull_comm_nccl.so: NCCL's functions as the table of
// nccl_api.h.
#include <cstddef>
#include <cstring>

#include "cuda_runtime_api.h"
#include "nccl.h"
#include "skrull/cuda/nccl/nccl_library.h"

// Non-blocking communicators that are split, with registered memory.
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 0)
#error "NCCL 2.19 or later is needed"
#endif

namespace skrull::exec {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(NcclResult::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::kUnhandledCudaError) ==
              ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclResult::kSystemError) == ncclSystemError);
static_assert(static_cast<int>(NcclResult::kInternalError) ==
              ncclInternalError);
static_assert(static_cast<int>(NcclResult::kInvalidArgument) ==
              ncclInvalidArgument);
static_assert(static_cast<int>(NcclResult::kInvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);

NcclResult From(ncclResult_t result) { return static_cast<NcclResult>(result); }
ncclComm_t Of(NcclComm comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t Of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// NCCL may write a handle only when an unfinished call completes, so it goes
// straight to where the caller keeps it.
ncclComm_t* Kept(NcclComm* comm) {
  static_assert(sizeof(ncclComm_t) == sizeof(NcclComm));
  return reinterpret_cast<ncclComm_t*>(comm);
}

ncclDataType_t Of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
  }
  return ncclNumTypes;  // which NCCL refuses
}

ncclConfig_t NonBlocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

class Library final : public NcclApi {
 public:
  NcclResult SetDevice(int32_t device) override {
    return cudaSetDevice(device) == cudaSuccess
               ? NcclResult::kSuccess
               : NcclResult::kUnhandledCudaError;
  }

  std::string ErrorText(NcclResult result) override {
    const char* const text =
        ncclGetErrorString(static_cast<ncclResult_t>(result));
    const char* const last = ncclGetLastError(nullptr);
    const bool more = last != nullptr && *last != '\0';
    return std::string(text) + (more ? std::string("; ") + last : "");
  }

  NcclResult GetUniqueId(NcclId* id) override {
    ncclUniqueId made;
    const ncclResult_t result = ncclGetUniqueId(&made);
    if (result == ncclSuccess) std::memcpy(id->data(), &made, sizeof(made));
    return From(result);
  }

  NcclResult CommInitRank(NcclComm* comm, int32_t size, const NcclId& id,
                          int32_t rank) override {
    ncclUniqueId given;
    std::memcpy(&given, id.data(), sizeof(given));
    ncclConfig_t config = NonBlocking();
    *comm = nullptr;
    return From(ncclCommInitRankConfig(Kept(comm), size, given, rank, &config));
  }

  NcclResult CommSplit(NcclComm comm, int32_t color, int32_t key,
                       NcclComm* part) override {
    ncclConfig_t config = NonBlocking();
    *part = nullptr;
    return From(ncclCommSplit(Of(comm), color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                              key, Kept(part), &config));
  }

  NcclResult CommGetAsyncError(NcclComm comm, NcclResult* state) override {
    ncclResult_t told = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(Of(comm), &told);
    *state = From(told);
    return From(result);
  }

  NcclResult CommFinalize(NcclComm comm) override {
    return From(ncclCommFinalize(Of(comm)));
  }
  NcclResult CommDestroy(NcclComm comm) override {
    return From(ncclCommDestroy(Of(comm)));
  }
  NcclResult CommAbort(NcclComm comm) override {
    return From(ncclCommAbort(Of(comm)));
  }

  NcclResult MemAlloc(void** data, int64_t bytes) override {
    return From(ncclMemAlloc(data, static_cast<size_t>(bytes)));
  }
  NcclResult MemFree(void* data) override { return From(ncclMemFree(data)); }

  NcclResult CommWindowRegister([[maybe_unused]] NcclComm comm,
                                [[maybe_unused]] void* data,
                                [[maybe_unused]] int64_t bytes,
                                NcclWindow* window) override {
    *window = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    return From(ncclCommWindowRegister(
        Of(comm), data, static_cast<size_t>(bytes),
        reinterpret_cast<ncclWindow_t*>(window),  // as Kept
        NCCL_WIN_COLL_SYMMETRIC));
#else
    return NcclResult::kSuccess;
#endif
  }

  NcclResult CommWindowDeregister([[maybe_unused]] NcclComm comm,
                                  [[maybe_unused]] NcclWindow window) override {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    return From(
        ncclCommWindowDeregister(Of(comm), static_cast<ncclWindow_t>(window)));
#else
    return NcclResult::kSuccess;
#endif
  }

  NcclResult AllGather(const void* send, void* recv, int64_t bytes,
                       NcclComm comm, Stream stream) override {
    return From(ncclAllGather(send, recv, static_cast<size_t>(bytes), ncclInt8,
                              Of(comm), Of(stream)));
  }

  NcclResult ReduceScatterSum(const void* send, void* recv, int64_t count,
                              DType dtype, NcclComm comm,
                              Stream stream) override {
    return From(ncclReduceScatter(send, recv, static_cast<size_t>(count),
                                  Of(dtype), ncclSum, Of(comm), Of(stream)));
  }

  NcclResult SendRecv(const void* send, int32_t to, void* recv, int32_t from,
                      int64_t bytes, NcclComm comm, Stream stream) override {
    const auto size = static_cast<size_t>(bytes);
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return From(result);
    const ncclResult_t sent =
        ncclSend(send, size, ncclInt8, to, Of(comm), Of(stream));
    const ncclResult_t received =
        ncclRecv(recv, size, ncclInt8, from, Of(comm), Of(stream));
    result = ncclGroupEnd();  // also after an error: it ends the group
    for (const ncclResult_t part : {sent, received}) {
      if (part != ncclSuccess && part != ncclInProgress) return From(part);
    }
    return From(result);
  }
};

// Never destroyed, so that it lives as long as the process.
NcclApi* Table() {
  static auto* const library = new Library;
  return library;
}

}  // namespace
}  // namespace skrull::exec

SKRULL_EXEC_DEFINE_NCCL(skrull::exec::Table);
