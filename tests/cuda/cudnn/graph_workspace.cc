#include "skrull/tests/cuda/cudnn/graph_workspace.h"

namespace skrull::exec::cudnn::testing {

int64_t GraphWorkspace(const GraphKey& key) {
  if (key.pass == Pass::kForward) return 16384;
  const Buckets& b = key.buckets;
  int64_t elements =
      b.total_q * (key.of(Role::kDQ).row + key.of(Role::kLse).row);
  if (key.q_heads > key.kv_heads) {
    elements += b.total_kv * (key.of(Role::kDK).row + key.of(Role::kDV).row) *
                (key.q_heads / key.kv_heads);
  }
  return 4 * elements;
}

}  // namespace skrull::exec::cudnn::testing
