#include "skrull/cuda/examples/cpu_trainer/rank_threads.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "skrull/cuda/in_process/in_process_pool.h"

namespace skrull::examples {

exec::Status RunRanks(
    int32_t ranks,
    const std::function<exec::Status(int32_t rank, const RankLinks& links)>&
        body) {
  exec::InProcessPool pool(ranks, {.time_limit = std::chrono::minutes(10)});
  std::vector<exec::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const RankLinks links{.communicators = pool.communicators(rank),
                            .agreement = pool.agreement(rank)};
      exec::Status& status = statuses[static_cast<size_t>(rank)];
      status = body(rank, links);
      if (!status.ok()) links.communicators->Abort(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  exec::Status first;
  for (size_t r = 0; r < statuses.size(); ++r) {
    const exec::Status& status = statuses[r];
    if (status.ok()) continue;
    const bool is_cause = status.code() != exec::StatusCode::kAborted;
    if (first.ok() ||
        (is_cause && first.code() == exec::StatusCode::kAborted)) {
      first = {status.code(),
               "rank " + std::to_string(r) + ": " + status.message()};
    }
  }
  return first;
}

}  // namespace skrull::examples
