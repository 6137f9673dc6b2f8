// What people read of a plan beside its figures.
#include "skrull/cli/plan_text.h"

#include <catch2/catch.hpp>

#include "skrull/v1/plan.pb.h"

namespace skrull::cli {
namespace {

TEST_CASE("ExplanationText: the sentence, and each what-if with its bound",
          "[cli][plan_text]") {
  v1::Plan wire;
  wire.mutable_summary()->set_lower_bound_seconds(0.2);
  v1::Explanation* const why = wire.mutable_summary()->mutable_explanation();
  why->set_text("Sequence 3 takes 91 % of the step.");
  v1::WhatIf* change = why->add_what_ifs();
  change->set_field("parallelism.block_scope");
  change->set_value("BLOCK_SCOPE_POOL");
  change->set_lower_bound_seconds(0.05);
  change = why->add_what_ifs();
  change->set_field("memory.bucket_size_tokens");
  change->set_value("32768");
  change->set_lower_bound_seconds(0.199);
  PlanResult plan;
  plan.plan_bytes = wire.SerializeAsString();
  CHECK(ExplanationText(plan) ==
        "  why: Sequence 3 takes 91 % of the step.\n"
        "  with parallelism.block_scope BLOCK_SCOPE_POOL: lower bound 50.00 ms "
        "(-75.00 %)\n"
        "  with memory.bucket_size_tokens 32768: lower bound 199.00 ms (-0.50 "
        "%)\n");
}

TEST_CASE("ExplanationText: says when there is none", "[cli][plan_text]") {
  PlanResult plan;
  plan.plan_bytes = v1::Plan().SerializeAsString();
  CHECK_THAT(ExplanationText(plan), Catch::Contains("does not explain"));
  plan.plan_bytes = "\xff\xff";
  CHECK_THAT(ExplanationText(plan), Catch::Contains("does not explain"));
}

}  // namespace
}  // namespace skrull::cli
