#include "skrull/cli/daemon_watch.h"

#include <utility>

namespace skrull::cli {

std::optional<DaemonRates> RatesBetween(const DaemonStatus& before,
                                        const DaemonStatus& after) {
  const double seconds =
      std::chrono::duration<double>(after.now - before.now).count();
  if (before.start_time != after.start_time || !(seconds > 0)) {
    return std::nullopt;
  }
  const auto rate = [&](int64_t from, int64_t to) {
    return (static_cast<double>(to) - static_cast<double>(from)) / seconds;
  };
  DaemonRates rates = {
      .plans = rate(before.plan_count, after.plan_count),
      .refusals = rate(before.refusal_count, after.refusal_count),
      .reports = rate(before.report_count, after.report_count),
      .out_of_memory =
          rate(before.out_of_memory_count, after.out_of_memory_count)};
  std::map<std::string, const DaemonJob*> known;
  for (const DaemonJob& job : before.jobs) known[job.name] = &job;
  for (const DaemonJob& job : after.jobs) {
    const auto found = known.find(job.name);
    if (found == known.end() || found->second->generation != job.generation) {
      continue;
    }
    rates.job_plans[job.name] = rate(found->second->plan_count, job.plan_count);
  }
  return rates;
}

DaemonWatch::DaemonWatch(std::vector<Daemon> daemons, int32_t max_jobs,
                         int32_t max_plans)
    : max_jobs_(max_jobs), max_plans_(max_plans) {
  for (Daemon& daemon : daemons) {
    watched_.push_back(
        {.daemon = std::move(daemon), .before = {}, .answer = {}});
  }
}

DaemonWatch::~DaemonWatch() = default;

void DaemonWatch::StartRound() {
  for (Watched& watched : watched_) {
    watched.answer = std::async(
        std::launch::async, [this, client = watched.daemon.client.get()] {
          return client->GetStatus(max_jobs_, max_plans_);
        });
  }
}

bool DaemonWatch::WaitForRound(std::chrono::milliseconds wait) {
  const auto until = std::chrono::steady_clock::now() + wait;
  for (const Watched& watched : watched_) {
    if (watched.answer.valid() &&
        watched.answer.wait_until(until) != std::future_status::ready) {
      return false;
    }
  }
  return true;
}

std::vector<DaemonSample> DaemonWatch::TakeRound() {
  std::vector<DaemonSample> samples;
  for (Watched& watched : watched_) {
    DaemonSample sample = {.address = watched.daemon.address,
                           .status = watched.answer.get(),
                           .rates = std::nullopt};
    if (sample.status.ok()) {
      if (watched.before) {
        sample.rates = RatesBetween(*watched.before, *sample.status);
      }
      watched.before = *sample.status;
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace skrull::cli
