// The variants of a sweep.
#include "skrull/cli/sweep.h"

#include <catch2/catch.hpp>

#include "skrull/server/convert.h"
#include "skrull/tests/client/cli_rows.h"

namespace skrull::cli {
namespace {

v1::JobSpec Spec(const std::string& more = "") {
  const auto spec = ParseJobSpecText(testing::kWholeSecondsJob + more);
  REQUIRE(spec.ok());
  return *spec;
}

std::string Text(const Variant& variant) {
  std::string text = std::to_string(variant.batch_size);
  for (const Change& change : variant.changes) {
    text += " " + change.field.substr(change.field.find('.') + 1) + "=" +
            change.value;
  }
  return text;
}

std::vector<std::string> Texts(const v1::JobSpec& spec, const Sweep& sweep) {
  const auto variants = MakeVariants(spec, sweep);
  REQUIRE(variants.ok());
  std::vector<std::string> texts;
  for (const Variant& variant : *variants) texts.push_back(Text(variant));
  return texts;
}

TEST_CASE("MakeVariants: as it is, then all combinations, the last fastest",
          "[cli][sweep]") {
  CHECK(Texts(Spec(), {}) == std::vector<std::string>{"0"});
  CHECK(
      Texts(Spec(), {.batch_sizes = {2, 4},
                     .bucket_sizes = {20, 30},
                     .cp_sizes = {1},
                     .scopes = {"POOL", "GROUP"},
                     .policies = {}}) ==
      std::vector<std::string>{"2",
                               "2 bucket_size_tokens=20 cp_size=1 dp_size=2 "
                               "block_scope=BLOCK_SCOPE_POOL",
                               "2 bucket_size_tokens=20 cp_size=1 dp_size=2",
                               "2 bucket_size_tokens=30 cp_size=1 dp_size=2 "
                               "block_scope=BLOCK_SCOPE_POOL",
                               "2 bucket_size_tokens=30 cp_size=1 dp_size=2",
                               "4 bucket_size_tokens=20 cp_size=1 dp_size=2 "
                               "block_scope=BLOCK_SCOPE_POOL",
                               "4 bucket_size_tokens=20 cp_size=1 dp_size=2",
                               "4 bucket_size_tokens=30 cp_size=1 dp_size=2 "
                               "block_scope=BLOCK_SCOPE_POOL",
                               "4 bucket_size_tokens=30 cp_size=1 dp_size=2"});
}

TEST_CASE("MakeVariants: what the job has already is no change",
          "[cli][sweep]") {
  // 10 tokens, cp_size 2, scope and policy by default.
  CHECK(Texts(Spec(), {.batch_sizes = {8, 8},
                       .bucket_sizes = {10},
                       .cp_sizes = {2, 2},
                       .scopes = {"GROUP"},
                       .policies = {"POLICY_OPTIMIZED", "POLICY_SKRULL"}}) ==
        std::vector<std::string>{"8", "8 policy=POLICY_SKRULL"});
  // A derived bucket is compared by its value.
  v1::JobSpec spec = Spec();
  spec.mutable_memory()->clear_bucket_size_tokens();
  spec.mutable_memory()->set_device_bytes(1000);
  spec.mutable_memory()->set_bytes_per_token(10);
  CHECK(Texts(spec, {.batch_sizes = {},
                     .bucket_sizes = {100, 99},
                     .cp_sizes = {},
                     .scopes = {},
                     .policies = {}}) ==
        std::vector<std::string>{"0", "0 bucket_size_tokens=99"});
}

TEST_CASE("MakeVariants: spec and job say what the changes say",
          "[cli][sweep]") {
  const auto variants = MakeVariants(Spec(), {.batch_sizes = {},
                                              .bucket_sizes = {20},
                                              .cp_sizes = {1},
                                              .scopes = {"SUBGROUP"},
                                              .policies = {"POLICY_SKRULL"}});
  REQUIRE(variants.ok());
  REQUIRE(variants->size() == 2);
  const Variant& variant = (*variants)[1];
  CHECK(variant.job.pool().dp_size == 2);
  CHECK(variant.job.pool().cp_size == 1);
  CHECK(variant.job.bucket_size() == 20);
  CHECK(variant.job.parallelism().block_scope == BlockScope::kSubgroup);
  CHECK(variant.job.policy() == Policy::kSkrull);
  v1::JobSpec expected = Spec();
  expected.mutable_memory()->set_bucket_size_tokens(20);
  expected.mutable_parallelism()->set_dp_size(2);
  expected.mutable_parallelism()->set_cp_size(1);
  expected.mutable_parallelism()->set_block_scope(v1::BLOCK_SCOPE_SUBGROUP);
  expected.set_policy(v1::POLICY_SKRULL);
  CHECK(CanonicalBytes(variant.spec) == CanonicalBytes(expected));
  CHECK(CanonicalBytes((*variants)[0].spec) == CanonicalBytes(Spec()));
}

TEST_CASE("MakeVariants: names what cannot be", "[cli][sweep]") {
  const auto message = [](const Sweep& sweep) {
    const auto variants = MakeVariants(Spec(), sweep);
    CHECK(absl::IsInvalidArgument(variants.status()));
    return std::string(variants.status().message());
  };
  Sweep sweep;
  sweep.cp_sizes = {1, 3};
  CHECK(message(sweep) ==
        "--cp 3: does not divide the 2 ranks of the job (dp_size 1, cp_size "
        "2), which stay as many");
  sweep.cp_sizes = {0};
  CHECK_THAT(message(sweep), Catch::StartsWith("--cp 0: "));
  sweep.cp_sizes = {1};
  sweep.bucket_sizes = {0};
  CHECK_THAT(message(sweep),
             Catch::StartsWith("no job with memory.bucket_size_tokens 0, "
                               "parallelism.cp_size 1, parallelism.dp_size 2: "
                               "memory.bucket_size_tokens"));
  sweep = {};
  sweep.scopes = {"WORLD"};
  CHECK(message(sweep) == "--scope WORLD: unknown");
  sweep = {};
  sweep.policies = {"FAST"};
  CHECK(message(sweep) == "--policy FAST: unknown");
}

}  // namespace
}  // namespace skrull::cli
