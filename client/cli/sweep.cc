#include "skrull/cli/sweep.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

// One value of one dimension: what it does to a variant.
using Step = std::function<absl::Status(Variant*)>;

void SetBucket(int64_t tokens, Variant* variant) {
  if (tokens == variant->job.bucket_size()) return;
  variant->spec.mutable_memory()->set_bucket_size_tokens(tokens);
  variant->changes.push_back(
      {"memory.bucket_size_tokens", absl::StrCat(tokens)});
}

absl::Status SetCp(int32_t cp_size, Variant* variant) {
  const PoolShape pool = variant->job.pool();
  if (cp_size < 1 || pool.ranks() % cp_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cp ", cp_size, ": does not divide the ", pool.ranks(),
                     " ranks of the job (dp_size ", pool.dp_size, ", cp_size ",
                     pool.cp_size, "), which stay as many"));
  }
  if (cp_size == pool.cp_size) return absl::OkStatus();
  const auto dp_size = static_cast<int32_t>(pool.ranks() / cp_size);
  v1::ParallelismSpec& parallelism = *variant->spec.mutable_parallelism();
  parallelism.set_cp_size(cp_size);
  parallelism.set_dp_size(dp_size);
  variant->changes.push_back({"parallelism.cp_size", absl::StrCat(cp_size)});
  variant->changes.push_back({"parallelism.dp_size", absl::StrCat(dp_size)});
  return absl::OkStatus();
}

absl::Status SetScope(const std::string& scope, Variant* variant) {
  const std::string name = "BLOCK_SCOPE_" + scope;
  v1::BlockScope value = v1::BLOCK_SCOPE_UNSPECIFIED;
  if (!v1::BlockScope_Parse(name, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--scope ", scope, ": unknown"));
  }
  v1::ParallelismSpec& parallelism = *variant->spec.mutable_parallelism();
  const v1::BlockScope before =
      parallelism.block_scope() == v1::BLOCK_SCOPE_UNSPECIFIED
          ? v1::BLOCK_SCOPE_GROUP
          : parallelism.block_scope();
  if (value == before) return absl::OkStatus();
  parallelism.set_block_scope(value);
  variant->changes.push_back({"parallelism.block_scope", name});
  return absl::OkStatus();
}

absl::Status SetPolicy(const std::string& policy, Variant* variant) {
  v1::Policy value = v1::POLICY_UNSPECIFIED;
  if (!v1::Policy_Parse(policy, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--policy ", policy, ": unknown"));
  }
  if (policy == PolicyName(variant->job.policy())) return absl::OkStatus();
  variant->spec.set_policy(value);
  variant->changes.push_back({"policy", policy});
  return absl::OkStatus();
}

template <typename T, typename Set>
std::vector<Step> StepsOf(const std::vector<T>& values, const Set& set) {
  std::vector<Step> steps;
  for (const T& value : values) {
    steps.push_back([value, set](Variant* variant) -> absl::Status {
      return set(value, variant);
    });
  }
  if (steps.empty()) {
    steps.push_back([](Variant*) { return absl::OkStatus(); });
  }
  return steps;
}

// Validates the changed spec. The Job of `variant` is that of the job as it is
// until here.
absl::Status Settle(Variant* variant) {
  absl::StatusOr<Job> job = JobFromProto(variant->spec);
  if (!job.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no job with ",
        absl::StrJoin(variant->changes, ", ",
                      [](std::string* out, const Change& change) {
                        absl::StrAppend(out, change.field, " ", change.value);
                      }),
        ": ", std::string(job.status().message())));
  }
  variant->job = *std::move(job);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Variant>> MakeVariants(const v1::JobSpec& spec,
                                                  const Sweep& sweep) {
  const absl::StatusOr<Job> job = JobFromProto(spec);
  if (!job.ok()) return job.status();
  Variant as_it_is = {.spec = spec, .job = *job, .changes = {}};
  if (!sweep.batch_sizes.empty()) as_it_is.batch_size = sweep.batch_sizes[0];

  const std::vector<std::vector<Step>> dimensions = {
      StepsOf(sweep.batch_sizes,
              [](int64_t size, Variant* variant) {
                variant->batch_size = size;
                return absl::OkStatus();
              }),
      StepsOf(sweep.bucket_sizes,
              [](int64_t tokens, Variant* variant) {
                SetBucket(tokens, variant);
                return absl::OkStatus();
              }),
      StepsOf(sweep.cp_sizes, SetCp), StepsOf(sweep.scopes, SetScope),
      StepsOf(sweep.policies, SetPolicy)};
  std::vector<Variant> all = {as_it_is};
  for (const std::vector<Step>& steps : dimensions) {
    std::vector<Variant> more;
    for (const Variant& variant : all) {
      for (const Step& step : steps) {
        more.push_back(variant);
        if (absl::Status set = step(&more.back()); !set.ok()) return set;
      }
    }
    all = std::move(more);
  }

  std::vector<Variant> distinct = {as_it_is};
  for (Variant& variant : all) {
    const bool known = std::any_of(
        distinct.begin(), distinct.end(), [&](const Variant& other) {
          return other.batch_size == variant.batch_size &&
                 other.changes == variant.changes;
        });
    if (known) continue;
    if (absl::Status status = Settle(&variant); !status.ok()) return status;
    distinct.push_back(std::move(variant));
  }
  return distinct;
}

}  // namespace skrull::cli
