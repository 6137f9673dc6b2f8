/* C interface of the planner's clients: plans in process, and from a daemon,
 * for trainers in any language. libskrull_client.so exports these functions
 * alone. What it makes goes to the executor (skrull_exec.h) as it is.
 *
 * Example, without a daemon (checks of the codes left out):
 *   skrull_client_planner_options of = {.struct_bytes = sizeof of,
 *                                       .job_spec_text = text};
 *   skrull_client_planner_create(&of, &planner);
 *   skrull_client_batch batch = {.struct_bytes = sizeof batch, .step = 12,
 *                                .lengths = lengths, .length_count = 256};
 *   skrull_client_planner_plan(planner, &batch, &plan);
 *   skrull_client_plan_rank(plan, rank, &share);
 *   skrull_rank_plan view = {.struct_bytes = sizeof view};
 *   skrull_client_rank_plan_view(share, 8, &view);
 *   skrull_plan_create(&view, &executable);                 (skrull_exec.h)
 *
 * Errors. Functions return SKRULL_CLIENT_OK or another code of
 * skrull_client_code, and skrull_client_last_error() then says what was wrong,
 * for the calling thread. A call that fails sets no output, except where it
 * says so. No C++ exception leaves.
 *
 * Versions, of structs: as in skrull_exec.h, except that a struct or a reserved
 * field with what this library does not know is UNIMPLEMENTED.
 *
 * Lifetime. What gives a handle says so by a pointer to one; *_destroy releases
 * it, and NULL is fine there. Handles may be destroyed in any order and on any
 * thread, but not while another thread uses them. Options, names and arrays
 * are copied. Pointers in structs that a function fills belong to the handle
 * it was asked about, and live as long.
 *
 * Threads. Every function may be called on any thread at any time, for the same
 * handle too. Plans and all that is made of them are immutable.
 *
 * Fork. A planner, a plan and all that is made of them work in a child. What
 * talks to a daemon does not: its calls fail there at once with
 * FAILED_PRECONDITION and the reason "FORKED". Destroying it there is safe.
 *
 * Time. `timeout_seconds` is a deadline from now, 0 the daemon handle's own,
 * at most 86400. Calls that wait for a daemon cannot be cancelled.
 *
 * Compiles as C99 and later, and as C++.
 */
#ifndef SKRULL_CLIENT_C_API_SKRULL_CLIENT_H_
#define SKRULL_CLIENT_C_API_SKRULL_CLIENT_H_

#include <stdint.h>

#include "skrull/cuda/c_api/skrull_exec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SKRULL_CLIENT_VERSION 1

/* The version of the library: SKRULL_CLIENT_VERSION of its header. */
int32_t skrull_client_version(void);

/* The canonical codes of gRPC. docs/errors.md says when and what helps. */
enum skrull_client_code {
  SKRULL_CLIENT_OK = 0,
  SKRULL_CLIENT_CANCELLED = 1,
  SKRULL_CLIENT_UNKNOWN = 2,
  SKRULL_CLIENT_INVALID_ARGUMENT = 3,
  SKRULL_CLIENT_DEADLINE_EXCEEDED = 4,
  SKRULL_CLIENT_NOT_FOUND = 5,
  SKRULL_CLIENT_ALREADY_EXISTS = 6,
  SKRULL_CLIENT_PERMISSION_DENIED = 7,
  SKRULL_CLIENT_RESOURCE_EXHAUSTED = 8,
  SKRULL_CLIENT_FAILED_PRECONDITION = 9,
  SKRULL_CLIENT_ABORTED = 10,
  SKRULL_CLIENT_OUT_OF_RANGE = 11,
  SKRULL_CLIENT_UNIMPLEMENTED = 12,
  SKRULL_CLIENT_INTERNAL = 13,
  SKRULL_CLIENT_UNAVAILABLE = 14,
  SKRULL_CLIENT_DATA_LOSS = 15,
  SKRULL_CLIENT_UNAUTHENTICATED = 16
};

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code. */
const char* skrull_client_code_name(int32_t code);

/* The last failure of a call on this thread. */
typedef struct skrull_client_error {
  int64_t struct_bytes; /* set by the caller */
  int32_t code;         /* 0: no call failed yet */
  int32_t has_limit;
  const char* message;    /* UTF-8, without the id of the request */
  const char* reason;     /* e.g. "SEQUENCE_TOO_LONG"; "" if it has none */
  const char* field;      /* path of the field at fault; "" if there is none */
  const char* request_id; /* in the daemon's log; "" of no request */
  const int64_t* indices; /* in that field */
  int64_t index_count;
  int64_t limit;              /* that was broken, if has_limit */
  double retry_after_seconds; /* < 0: do not, before something changes */
} skrull_client_error;

/* Fills `error`; its pointers are valid until the next failure on this thread.
 * Returns OK, or INVALID_ARGUMENT for a struct that is none; does not change
 * what it tells. */
int32_t skrull_client_last_error(skrull_client_error* error);

/* ---------------------------------------------------------------------------
 * Bytes: what has no fixed size. */

typedef struct skrull_client_bytes skrull_client_bytes;

/* Followed by an end mark that is not counted. Never NULL. */
const char* skrull_client_bytes_data(const skrull_client_bytes* bytes);
int64_t skrull_client_bytes_size(const skrull_client_bytes* bytes);
void skrull_client_bytes_destroy(skrull_client_bytes* bytes);

/* ---------------------------------------------------------------------------
 * Job specs: the text form of skrull.v1.JobSpec. */

typedef struct skrull_client_job_spec {
  int64_t struct_bytes; /* set by the caller */
  int32_t dp_size;
  int32_t cp_size; /* dp_size * cp_size ranks are the pool */
  int32_t tp_size;
  int32_t pp_size;
  int64_t bucket_size_tokens; /* as given or derived */
  int64_t longest_sequence;   /* that the job can place, tokens */
  int64_t hidden_size;
  int64_t layer_count;
  int64_t q_heads;    /* 0: the spec does not say */
  int64_t kv_heads;   /* 0: the spec does not say */
  int64_t head_dim;   /* 0: the spec does not say */
  const char* policy; /* of batches that name none; lives for ever */
} skrull_client_job_spec;

/* What a spec says, defaults filled in. Errors: INVALID_ARGUMENT with line and
 * column, or naming the field. */
int32_t skrull_client_describe_job_spec(const char* job_spec_text,
                                        skrull_client_job_spec* spec);

/* ---------------------------------------------------------------------------
 * Plans. */

typedef struct skrull_client_plan skrull_client_plan;

/* One global batch. */
typedef struct skrull_client_batch {
  int64_t struct_bytes;
  const char* job;        /* name; NULL: none, in process alone */
  const char* policy;     /* e.g. "POLICY_SKRULL"; NULL: the job's */
  int64_t step;           /* >= 0 */
  int32_t attempt;        /* 0 .. 1000 */
  int32_t reserved;       /* 0 */
  const int64_t* lengths; /* of the sequences, tokens, each 1 .. 2^31 - 1 */
  int64_t length_count;
  int64_t generation; /* from a daemon: refuse another one; 0 = any */
} skrull_client_batch;

/* Fields of the same name of skrull.v1.Plan and PlanSummary. */
typedef struct skrull_client_plan_info {
  int64_t struct_bytes; /* set by the caller */
  const char* job;
  const char* digest; /* 64 hexadecimal digits */
  const char* policy;
  const char* bytes; /* deterministic serialization of skrull.v1.Plan */
  int64_t byte_count;
  int64_t step;
  int32_t attempt;
  int32_t committed; /* 1: stands under (job, step, attempt) at a daemon */
  int64_t calibration_epoch;
  int64_t sequence_count;
  double planning_seconds; /* < 0: not known, as of one committed earlier */
  double predicted_seconds;
  double lower_bound_seconds;
  double dp_imbalance;
  double rank_imbalance;
  double pipeline_seconds;
  double pipeline_bubble;
  int64_t roll_back_count;
  int64_t sharded_sequence_count;
  int64_t sharded_token_count;
  int64_t micro_batch_count;
  int64_t max_rank_tokens;
  /* How the daemon failed where the plan was made in process instead, by a
   * skrull_client_fallback; "" for every other plan. */
  const char* fallback_reason;
} skrull_client_plan_info;

/* From its bytes, e.g. out of another process. Errors: INVALID_ARGUMENT for
 * bytes that are no plan, or do not have the digest that they name. */
int32_t skrull_client_plan_parse(const char* bytes, int64_t byte_count,
                                 skrull_client_plan** plan);
void skrull_client_plan_destroy(skrull_client_plan* plan);

int32_t skrull_client_plan_describe(const skrull_client_plan* plan,
                                    skrull_client_plan_info* info);
/* Lengths of the batch. `count` is sequence_count, else INVALID_ARGUMENT. */
int32_t skrull_client_plan_lengths(const skrull_client_plan* plan,
                                   int64_t* lengths, int64_t count);
/* As `skrullctl plan --format json` prints it: one object, no line end. */
int32_t skrull_client_plan_json(const skrull_client_plan* plan,
                                skrull_client_bytes** json);
/* One self-contained HTML page: timeline, loads, what is sharded and why. It
 * compares with other policies, so it plans anew. Errors: INVALID_ARGUMENT if
 * the plan is not one that the job allows; UNIMPLEMENTED for a plan of chunks.
 */
int32_t skrull_client_plan_report(const skrull_client_plan* plan,
                                  const char* job_spec_text,
                                  skrull_client_bytes** html);

/* ---------------------------------------------------------------------------
 * Rank plans: one rank's share. */

typedef struct skrull_client_rank_plan skrull_client_rank_plan;

typedef struct skrull_client_rank_plan_info {
  int64_t struct_bytes; /* set by the caller */
  const char* job;
  int64_t step;
  int32_t attempt;
  int32_t rank;
  int64_t batch_token_count; /* over all ranks and micro-batches */
  double predicted_seconds;  /* of the step */
} skrull_client_rank_plan_info;

/* Equal to what the daemon says of it. Errors: INVALID_ARGUMENT for a negative
 * rank; a rank outside the pool has no rows. O(placements). */
int32_t skrull_client_plan_rank(const skrull_client_plan* plan, int32_t rank,
                                skrull_client_rank_plan** rank_plan);
void skrull_client_rank_plan_destroy(skrull_client_rank_plan* rank_plan);

int32_t skrull_client_rank_plan_describe(
    const skrull_client_rank_plan* rank_plan,
    skrull_client_rank_plan_info* info);
/* In the form that skrull_plan_create takes; `ranks` are the pool's. Errors:
 * INVALID_ARGUMENT unless rank < ranks; UNIMPLEMENTED for a plan of chunks. */
int32_t skrull_client_rank_plan_view(const skrull_client_rank_plan* rank_plan,
                                     int32_t ranks, skrull_rank_plan* view);

/* ---------------------------------------------------------------------------
 * The planner in process. Needs no daemon; ranks must give it the same lengths
 * themselves, and compare digests. */

typedef struct skrull_client_planner skrull_client_planner;

typedef struct skrull_client_planner_options {
  int64_t struct_bytes;
  const char* job_spec_text;
  int64_t calibration_epoch; /* copied into plans; >= 0 */
} skrull_client_planner_options;

/* Errors: INVALID_ARGUMENT with line and column, or naming the field. */
int32_t skrull_client_planner_create(
    const skrull_client_planner_options* options,
    skrull_client_planner** planner);
void skrull_client_planner_destroy(skrull_client_planner* planner);

/* Errors: INVALID_ARGUMENT naming field and indices; FAILED_PRECONDITION for a
 * batch that can never fit the job; RESOURCE_EXHAUSTED. */
int32_t skrull_client_planner_plan(const skrull_client_planner* planner,
                                   const skrull_client_batch* batch,
                                   skrull_client_plan** plan);

/* ---------------------------------------------------------------------------
 * A daemon. */

typedef struct skrull_client_daemon skrull_client_daemon;

/* Meaning, ranges and defaults: ClientOptions in client/cpp/planner_client.h.
 * NULL texts and zero numbers take the defaults. */
typedef struct skrull_client_daemon_options {
  int64_t struct_bytes;
  const char* address; /* "host:port"; several with commas are replicas */
  double timeout_seconds;
  /* < 0: after the first attempt. */
  double unreachable_after_seconds;
  int32_t prefetch_depth;
  int32_t allow_plaintext_token; /* 1: also to another machine */
  const char* tls_ca_file;
  const char* tls_cert_file;
  const char* tls_key_file;
  const char* tls_server_name;
  const char* token;
  const char* token_file;
} skrull_client_daemon_options;

/* Does not connect. Errors: INVALID_ARGUMENT naming the option;
 * FAILED_PRECONDITION "FORKED" in a child of a process that made one. */
int32_t skrull_client_daemon_create(const skrull_client_daemon_options* options,
                                    skrull_client_daemon** daemon);
void skrull_client_daemon_destroy(skrull_client_daemon* daemon);

/* OK if the daemon takes calls. Asks once. */
int32_t skrull_client_daemon_check_health(skrull_client_daemon* daemon,
                                          double timeout_seconds);

typedef struct skrull_client_job skrull_client_job;

typedef struct skrull_client_job_info {
  int64_t struct_bytes; /* set by the caller */
  const char* name;
  const char* owner;
  const char* job_spec_text;        /* as it was created */
  const char* calibrated_spec_text; /* with the numbers of the epoch in force */
  int64_t generation;
  int64_t calibration_epoch;
} skrull_client_job_info;

/* Registers a job, or joins the one of that name and spec; `generation` 0
 * joins or creates, higher than the job's replaces it. Errors: ALREADY_EXISTS
 * for another spec; FAILED_PRECONDITION for a generation below the job's. */
int32_t skrull_client_daemon_create_job(
    skrull_client_daemon* daemon, const char* name, const char* job_spec_text,
    int64_t generation, double timeout_seconds, skrull_client_job** job);
/* Errors: NOT_FOUND. */
int32_t skrull_client_daemon_get_job(skrull_client_daemon* daemon,
                                     const char* name, double timeout_seconds,
                                     skrull_client_job** job);
int32_t skrull_client_job_describe(const skrull_client_job* job,
                                   skrull_client_job_info* info);
void skrull_client_job_destroy(skrull_client_job* job);

/* Plans the batch and commits it under (job, step, attempt): every later caller
 * gets the same bytes. */
int32_t skrull_client_daemon_plan(skrull_client_daemon* daemon,
                                  const skrull_client_batch* batch,
                                  double timeout_seconds,
                                  skrull_client_plan** plan);

/* One rank's share of a plan that any rank had committed; waits for that.
 * `batch` names it; its policy and lengths are not read. */
int32_t skrull_client_daemon_rank_plan(skrull_client_daemon* daemon,
                                       const skrull_client_batch* batch,
                                       int32_t rank, double timeout_seconds,
                                       skrull_client_rank_plan** rank_plan);

/* How a step went on one rank. Seconds < 0 are not measured. */
typedef struct skrull_client_step_report {
  int64_t struct_bytes;
  const char* job;
  int64_t generation; /* 0 = any */
  int64_t step;
  int32_t attempt;
  int32_t rank;
  int32_t outcome;  /* 0 ok, 1 out of device memory, 2 any other failure */
  int32_t reserved; /* 0 */
  double step_seconds;
  double attention_seconds;
  double exchange_seconds; /* that nothing hid */
  int64_t peak_bytes;      /* 0: not measured */
} skrull_client_step_report;

typedef struct skrull_client_report_answer {
  int64_t struct_bytes; /* set by the caller */
  int64_t calibration_epoch;
  int32_t attempt; /* above the report's: all ranks run this one instead */
  int32_t reserved;
} skrull_client_report_answer;

/* After outcome 1 it waits for the next attempt to be planned. Errors:
 * FAILED_PRECONDITION "ATTEMPTS_EXHAUSTED" when there is none. */
int32_t skrull_client_daemon_report(skrull_client_daemon* daemon,
                                    const skrull_client_step_report* report,
                                    double timeout_seconds,
                                    skrull_client_report_answer* answer);

/* One rank's part in a meeting of a job's ranks. */
typedef struct skrull_client_meeting {
  int64_t struct_bytes;
  const char* job;
  const char* key; /* 1 .. 128 characters */
  int64_t generation;
  int32_t rank;      /* 0 .. size - 1 */
  int32_t size;      /* ranks that meet */
  const char* offer; /* rank 0: 1 .. 4096 bytes; others: none */
  int64_t offer_bytes;
} skrull_client_meeting;

/* Waits for all ranks and gives each what rank 0 offered. All or none. */
int32_t skrull_client_daemon_meet(skrull_client_daemon* daemon,
                                  const skrull_client_meeting* meeting,
                                  double timeout_seconds,
                                  skrull_client_bytes** offer);

/* ---------------------------------------------------------------------------
 * A daemon, or this process while it cannot be reached. Ranks that compare
 * digests never mix the two: client/cpp/fallback_planner.h says why. */

typedef struct skrull_client_fallback skrull_client_fallback;

/* For the job at its generation. Does not call the daemon. The daemon handle
 * may go before this one. */
int32_t skrull_client_fallback_create(skrull_client_daemon* daemon,
                                      const skrull_client_job* job,
                                      skrull_client_fallback** fallback);
void skrull_client_fallback_destroy(skrull_client_fallback* fallback);

/* Plans at the daemon or, when that is away, here, with the last epoch known:
 * fallback_reason of the plan then says how the daemon failed. The batch's job
 * is NULL and its generation 0: they are the handle's. Errors: the daemon's own
 * refusals; UNAVAILABLE or DEADLINE_EXCEEDED where the epoch in force is not
 * known. */
int32_t skrull_client_fallback_plan(skrull_client_fallback* fallback,
                                    const skrull_client_batch* batch,
                                    double timeout_seconds,
                                    skrull_client_plan** plan);
/* As skrull_client_daemon_report, which nothing replaces while the daemon is
 * away. The report's job is NULL and its generation 0. */
int32_t skrull_client_fallback_report(skrull_client_fallback* fallback,
                                      const skrull_client_step_report* report,
                                      double timeout_seconds,
                                      skrull_client_report_answer* answer);

/* ---------------------------------------------------------------------------
 * A stream: batches in, plans out, in the same order, made while the current
 * step trains. Survives restarts of the daemon. */

typedef struct skrull_client_stream skrull_client_stream;

typedef struct skrull_client_stream_options {
  int64_t struct_bytes;
  const char* job;
  const char* policy; /* NULL: the job's */
  int64_t generation; /* 0 = any */
} skrull_client_stream_options;

/* Does not wait for the daemon. The daemon handle may go before the stream. */
int32_t skrull_client_stream_create(skrull_client_daemon* daemon,
                                    const skrull_client_stream_options* options,
                                    skrull_client_stream** stream);
/* Cancels what is unanswered. */
void skrull_client_stream_destroy(skrull_client_stream* stream);

/* Queues a batch; its job, policy and generation are the stream's, and
 * NULL and 0 in it. Errors:
 * RESOURCE_EXHAUSTED when prefetch_depth batches wait. */
int32_t skrull_client_stream_send(skrull_client_stream* stream,
                                  const skrull_client_batch* batch);

typedef struct skrull_client_answer {
  int64_t struct_bytes; /* set by the caller */
  int64_t step;
  int32_t attempt;
  int32_t answered; /* 1: this batch was answered, also when refused */
} skrull_client_answer;

/* Waits for the answer to the oldest batch. `answer` is always filled. An error
 * with answered = 1 is why the daemon refused that batch; one with 0 means that
 * it still waits: UNAVAILABLE, DEADLINE_EXCEEDED, or FAILED_PRECONDITION when
 * no batch does. */
int32_t skrull_client_stream_next(skrull_client_stream* stream,
                                  double timeout_seconds,
                                  skrull_client_answer* answer,
                                  skrull_client_plan** plan);
/* Batches sent that next has not returned. */
int32_t skrull_client_stream_pending(const skrull_client_stream* stream,
                                     int32_t* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // SKRULL_CLIENT_C_API_SKRULL_CLIENT_H_
