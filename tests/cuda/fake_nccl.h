// NCCL for ranks that are threads, over host memory: what NcclPool sees of it,
// the unfinished calls included.
#ifndef SKRULL_TESTS_CUDA_FAKE_NCCL_H_
#define SKRULL_TESTS_CUDA_FAKE_NCCL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/nccl/nccl_api.h"

namespace skrull::exec::testing {

// Thread-safe; one for all ranks. A call that needs other ranks is in progress
// until they have made theirs; unlike NCCL's, collectives then are complete.
// Handles are written when their call is done, not before. Every second of
// CommGetAsyncError's answers comes late. To connect or allocate on a thread
// that has not selected a device is a misuse.
class FakeNccl : public NcclApi {
 public:
  FakeNccl();
  ~FakeNccl() override;

  // What the calls of `name` return from now on, instead of being made.
  void Break(const std::string& name, NcclResult result);
  // The pool's rank `rank` has this asynchronous error on all communicators.
  void SetAsyncError(int32_t rank, NcclResult result);
  // Makes registration succeed without a window, as old machines do.
  void HaveNoWindows();

  struct Counts {
    int communicators = 0;  // neither destroyed nor aborted
    int buffers = 0;
    int windows = 0;
    int aborted = 0;
    int destroyed = 0;
    int misuses = 0;  // calls on what is no longer there, or unlike the others'
  };
  Counts counts();
  // The pool's splits, as "color/key color/key ..." by rank.
  std::vector<std::string> splits();
  // Those that were ever selected.
  std::set<int32_t> devices();

  NcclResult SetDevice(int32_t device) override;
  std::string ErrorText(NcclResult result) override;
  NcclResult GetUniqueId(NcclId* id) override;
  NcclResult CommInitRank(NcclComm* comm, int32_t size, const NcclId& id,
                          int32_t rank) override;
  NcclResult CommSplit(NcclComm comm, int32_t color, int32_t key,
                       NcclComm* part) override;
  NcclResult CommGetAsyncError(NcclComm comm, NcclResult* state) override;
  NcclResult CommFinalize(NcclComm comm) override;
  NcclResult CommDestroy(NcclComm comm) override;
  NcclResult CommAbort(NcclComm comm) override;
  NcclResult MemAlloc(void** data, int64_t bytes) override;
  NcclResult MemFree(void* data) override;
  NcclResult CommWindowRegister(NcclComm comm, void* data, int64_t bytes,
                                NcclWindow* window) override;
  NcclResult CommWindowDeregister(NcclComm comm, NcclWindow window) override;
  NcclResult AllGather(const void* send, void* recv, int64_t bytes,
                       NcclComm comm, Stream stream) override;
  NcclResult ReduceScatterSum(const void* send, void* recv, int64_t count,
                              DType dtype, NcclComm comm,
                              Stream stream) override;
  NcclResult SendRecv(const void* send, int32_t to, void* recv, int32_t from,
                      int64_t bytes, NcclComm comm, Stream stream) override;

 private:
  struct Call {
    std::string what;
    const void* send = nullptr;
    void* recv = nullptr;
    int32_t color = -1, key = 0;
  };
  // One call that all ranks of a group make.
  struct Round {
    std::map<int32_t, Call> calls;  // by rank in the group
    std::map<int32_t, struct FakeComm*> parts;
    bool done = false;
  };
  struct Group {
    int32_t size = 0;
    std::vector<std::unique_ptr<Round>> rounds;
  };
  friend struct FakeComm;

  // Null, and a misuse, if there is none.
  FakeComm* Find(NcclComm comm);
  // Broken as Break says?
  bool Broken(const std::string& name, NcclResult* result);
  NcclResult Enter(FakeComm* comm, Call call);
  void Finish(Group* group, Round* round);
  NcclResult Drop(NcclComm comm, int* count);

  std::mutex mutex_;
  Counts counts_;
  bool windows_exist_ = true;
  std::map<std::string, NcclResult> broken_;
  std::map<int32_t, NcclResult> async_errors_;
  std::map<NcclId, Group*> by_id_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::map<NcclComm, std::unique_ptr<FakeComm>> comms_;
  std::vector<std::string> splits_;
  std::set<int32_t> devices_;
  int ids_ = 0;
  int64_t asked_ = 0;
};

}  // namespace skrull::exec::testing

#endif  // SKRULL_TESTS_CUDA_FAKE_NCCL_H_
