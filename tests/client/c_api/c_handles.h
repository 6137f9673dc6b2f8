// Handles of skrull_client.h for tests, and what they are made from.
#ifndef SKRULL_TESTS_CLIENT_C_API_C_HANDLES_H_
#define SKRULL_TESTS_CLIENT_C_API_C_HANDLES_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skrull/c_api/skrull_client.h"

namespace skrull::testing {

// Four ranks of 100 tokens each.
inline constexpr char kCJob[] =
    "model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }\n"
    "parallelism { cp_size: 4 } memory { bucket_size_tokens: 100 }\n";

template <auto kDestroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};

using Planner = std::unique_ptr<skrull_client_planner,
                                Destroy<skrull_client_planner_destroy>>;
using Plan =
    std::unique_ptr<skrull_client_plan, Destroy<skrull_client_plan_destroy>>;
using CDaemon = std::unique_ptr<skrull_client_daemon,
                                Destroy<skrull_client_daemon_destroy>>;
using CJob =
    std::unique_ptr<skrull_client_job, Destroy<skrull_client_job_destroy>>;
using CStream = std::unique_ptr<skrull_client_stream,
                                Destroy<skrull_client_stream_destroy>>;

inline skrull_client_error LastError() {
  skrull_client_error error = {};
  error.struct_bytes = sizeof error;
  REQUIRE(skrull_client_last_error(&error) == SKRULL_CLIENT_OK);
  return error;
}

// The lengths must outlive the batch.
inline skrull_client_batch BatchOf(const std::vector<int64_t>& lengths,
                                   int64_t step = 0) {
  skrull_client_batch batch = {};
  batch.struct_bytes = sizeof batch;
  batch.step = step;
  batch.lengths = lengths.data();
  batch.length_count = static_cast<int64_t>(lengths.size());
  return batch;
}

inline Planner MakePlanner() {
  skrull_client_planner_options options = {};
  options.struct_bytes = sizeof options;
  options.job_spec_text = kCJob;
  skrull_client_planner* planner = nullptr;
  REQUIRE(skrull_client_planner_create(&options, &planner) == 0);
  return Planner(planner);
}

inline Plan MakePlan(const Planner& planner,
                     const std::vector<int64_t>& lengths) {
  const skrull_client_batch batch = BatchOf(lengths);
  skrull_client_plan* plan = nullptr;
  REQUIRE(skrull_client_planner_plan(planner.get(), &batch, &plan) == 0);
  return Plan(plan);
}

inline skrull_client_plan_info InfoOf(const skrull_client_plan* plan) {
  skrull_client_plan_info info = {};
  info.struct_bytes = sizeof info;
  REQUIRE(skrull_client_plan_describe(plan, &info) == 0);
  return info;
}

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_CLIENT_C_API_C_HANDLES_H_
