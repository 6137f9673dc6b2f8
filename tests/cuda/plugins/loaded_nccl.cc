// A libnccl.so.2 with the functions that libskrull_comm_nccl.so needs. It can
// do one thing, by which it is known: its unique ids are full of 'L'.
#include <cstring>

extern "C" {

// ncclResult_t ncclGetUniqueId(ncclUniqueId*).
int ncclGetUniqueId(void* id);
int ncclGetUniqueId(void* id) {
  std::memset(id, 'L', 128);
  return 0;
}

const char* ncclGetErrorString(int);
const char* ncclGetErrorString(int) { return "the loaded library's error"; }
const char* ncclGetLastError(void*);
const char* ncclGetLastError(void*) { return ""; }

// The rest is only bound, never called: ncclInvalidUsage.
#define SKRULL_TEST_BOUND(function) \
  int function();                   \
  int function() { return 5; }
SKRULL_TEST_BOUND(ncclAllGather)
SKRULL_TEST_BOUND(ncclCommAbort)
SKRULL_TEST_BOUND(ncclCommDestroy)
SKRULL_TEST_BOUND(ncclCommFinalize)
SKRULL_TEST_BOUND(ncclCommGetAsyncError)
SKRULL_TEST_BOUND(ncclCommInitRankConfig)
SKRULL_TEST_BOUND(ncclCommSplit)
SKRULL_TEST_BOUND(ncclCommWindowDeregister)
SKRULL_TEST_BOUND(ncclCommWindowRegister)
SKRULL_TEST_BOUND(ncclGroupEnd)
SKRULL_TEST_BOUND(ncclGroupStart)
SKRULL_TEST_BOUND(ncclMemAlloc)
SKRULL_TEST_BOUND(ncclMemFree)
SKRULL_TEST_BOUND(ncclRecv)
SKRULL_TEST_BOUND(ncclReduceScatter)
SKRULL_TEST_BOUND(ncclSend)
}
