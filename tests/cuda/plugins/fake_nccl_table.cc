// The fake of NCCL as a libskrull_comm_nccl.so, and a way to look at it.
#include "skrull/cuda/nccl/nccl_library.h"
#include "skrull/tests/cuda/fake_nccl.h"

namespace skrull::exec::testing {
namespace {

FakeNccl* Fake() {
  static auto* const fake = new FakeNccl;
  return fake;
}

NcclApi* Table() { return Fake(); }

}  // namespace
}  // namespace skrull::exec::testing

SKRULL_EXEC_DEFINE_NCCL(skrull::exec::testing::Table);

extern "C" {
skrull::exec::testing::FakeNccl* skrull_test_fake_nccl();
skrull::exec::testing::FakeNccl* skrull_test_fake_nccl() {
  return skrull::exec::testing::Fake();
}
}
