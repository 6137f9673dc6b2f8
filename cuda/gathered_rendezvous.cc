#include "skrull/cuda/gathered_rendezvous.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace skrull::exec {
namespace {

constexpr size_t kMostBytes = 4096;

}  // namespace

Rendezvous GatheredRendezvous(int32_t rank, int32_t ranks,
                              DigestAllGather all_gather) {
  return [=, gather = std::move(all_gather)](
             const std::string& offer) -> Result<std::string> {
    std::vector<DigestBytes> all(static_cast<size_t>(ranks));
    DigestBytes mine{};
    size_t size = offer.size();
    std::memcpy(mine.data(), &size, sizeof(size));
    SKRULL_EXEC_RETURN_IF_ERROR(gather(mine, all));
    std::memcpy(&size, all[0].data(), sizeof(size));
    if (size > kMostBytes) {
      return InvalidArgument("rank 0 offers " + std::to_string(size) +
                             " bytes, where " + std::to_string(kMostBytes) +
                             " are the most");
    }
    std::string answer(size, '\0');
    for (size_t done = 0; done < size; done += mine.size()) {
      const size_t part = std::min(mine.size(), size - done);
      if (rank == 0) std::memcpy(mine.data(), offer.data() + done, part);
      SKRULL_EXEC_RETURN_IF_ERROR(gather(mine, all));
      std::memcpy(answer.data() + done, all[0].data(), part);
    }
    return answer;
  };
}

}  // namespace skrull::exec
