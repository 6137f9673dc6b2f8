/* A trainer in C99: plans in process and hands its share to the executor. */
#include <stdio.h>
#include <string.h>

#include "skrull/c_api/skrull_client.h"
#include "skrull/cuda/c_api/skrull_exec.h"

enum { kRanks = 4, kSequences = 5 };

static const char kJob[] =
    "model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }\n"
    "parallelism { cp_size: 4 } memory { bucket_size_tokens: 100 }\n";
static const int64_t kLengths[kSequences] = {30, 250, 7, 1, 60};

#define TRY(call)                                                   \
  do {                                                              \
    const int32_t code_ = (call);                                   \
    if (code_ != 0) {                                               \
      skrull_client_error error_ = {.struct_bytes = sizeof error_}; \
      skrull_client_last_error(&error_);                            \
      fprintf(stderr, "%s: %s, %s, %s\n", #call,                    \
              skrull_client_code_name(code_), error_.message,       \
              skrull_exec_last_error());                            \
      return 1;                                                     \
    }                                                               \
  } while (0)

/* Counts how often each token is on a rank. */
static int count_rows(const skrull_client_plan* plan, int32_t rank,
                      int seen[kSequences][256]) {
  skrull_client_rank_plan* share = NULL;
  skrull_plan* executable = NULL;
  skrull_rank_plan view = {.struct_bytes = sizeof view};
  TRY(skrull_client_plan_rank(plan, rank, &share));
  TRY(skrull_client_rank_plan_view(share, kRanks, &view));
  TRY(skrull_plan_create(&view, &executable));
  skrull_client_rank_plan_destroy(share); /* the executor has its own copy */
  int32_t count = 0;
  TRY(skrull_plan_micro_batch_count(executable, &count));
  for (int32_t i = 0; i < count; ++i) {
    int32_t positions[256], sequences[256];
    skrull_micro_batch_info info = {.struct_bytes = sizeof info};
    TRY(skrull_plan_micro_batch(executable, i, &info));
    if (info.rows > 100) return 1; /* the bucket */
    TRY(skrull_plan_positions(executable, i, positions, info.rows));
    TRY(skrull_plan_sequences(executable, i, sequences, info.rows));
    for (int64_t row = 0; row < info.rows; ++row) {
      ++seen[sequences[row]][positions[row]];
    }
  }
  skrull_plan_destroy(executable);
  return 0;
}

int main(void) {
  skrull_client_planner_options of = {.struct_bytes = sizeof of,
                                      .job_spec_text = kJob};
  skrull_client_batch batch = {.struct_bytes = sizeof batch,
                               .step = 12,
                               .lengths = kLengths,
                               .length_count = kSequences};
  skrull_client_planner* planner = NULL;
  skrull_client_plan* plan = NULL;
  if (skrull_client_version() != SKRULL_CLIENT_VERSION) return 1;
  TRY(skrull_client_planner_create(&of, &planner));
  TRY(skrull_client_planner_plan(planner, &batch, &plan));
  skrull_client_planner_destroy(planner); /* not the order of creation */

  skrull_client_plan_info info = {.struct_bytes = sizeof info};
  TRY(skrull_client_plan_describe(plan, &info));
  if (info.step != 12 || strlen(info.digest) != 64 ||
      info.sequence_count != kSequences || info.committed != 0) {
    fprintf(stderr, "step %lld, digest %s\n", (long long)info.step,
            info.digest);
    return 1;
  }

  int seen[kSequences][256];
  memset(seen, 0, sizeof seen);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (count_rows(plan, rank, seen) != 0) return 1;
  }
  for (int s = 0; s < kSequences; ++s) {
    for (int p = 0; p < 256; ++p) {
      if (seen[s][p] != (p < kLengths[s] ? 1 : 0)) {
        fprintf(stderr, "sequence %d, token %d: on %d ranks\n", s, p,
                seen[s][p]);
        return 1;
      }
    }
  }
  skrull_client_plan_destroy(plan);
  return 0;
}
