// Streams of plans of skrull_client.h.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/c_api/batch.h"
#include "skrull/c_api/call.h"
#include "skrull/c_api/handles.h"
#include "skrull/client/plan_stream.h"

namespace skrull::client_c {
namespace {

absl::StatusOr<std::unique_ptr<skrull_client_stream>> MakeStream(
    PlannerClient& client, const skrull_client_stream_options& options) {
  absl::StatusOr<std::unique_ptr<PlanStream>> stream =
      client.StreamPlans({.job = Text(options.job),
                          .generation = options.generation,
                          .policy = Text(options.policy)});
  if (!stream.ok()) return stream.status();
  return std::make_unique<skrull_client_stream>(
      skrull_client_stream{*std::move(stream)});
}

// What else a batch of a stream could say is the stream's to say.
absl::Status CheckStreamBatch(const skrull_client_batch& batch) {
  for (const auto& [name, text] :
       {std::pair("job", batch.job), std::pair("policy", batch.policy)}) {
    if (text != nullptr) {
      return InvalidField(name, "is the stream's, and must be NULL");
    }
  }
  if (batch.generation == 0) return absl::OkStatus();
  return InvalidField("generation", "is the stream's, and must be 0");
}

absl::Status Next(skrull_client_stream& stream, double timeout_seconds,
                  skrull_client_answer* answer, skrull_client_plan** plan) {
  const auto timeout = ToTimeout("timeout_seconds", timeout_seconds);
  if (!timeout.ok()) return timeout.status();
  absl::StatusOr<StreamedPlan> next = stream.stream->Next(*timeout);
  if (!next.ok()) return next.status();
  answer->step = next->step;
  answer->attempt = next->attempt;
  answer->answered = 1;
  if (!next->plan.ok()) return next->plan.status();
  return GiveOut(MakePlanHandle(*std::move(next->plan)), plan);
}

}  // namespace
}  // namespace skrull::client_c

using namespace skrull::client_c;  // NOLINT: one file of one interface

extern "C" {

int32_t skrull_client_stream_create(skrull_client_daemon* daemon,
                                    const skrull_client_stream_options* options,
                                    skrull_client_stream** stream) {
  return Call([&]() -> absl::Status {
    skrull_client_stream_options read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(daemon, "daemon"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(stream, "stream"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadStruct(options, "options", &read));
    return GiveOut(MakeStream(*daemon->client, read), stream);
  });
}

void skrull_client_stream_destroy(skrull_client_stream* stream) {
  delete stream;
}

int32_t skrull_client_stream_send(skrull_client_stream* stream,
                                  const skrull_client_batch* batch) {
  return Call([&]() -> absl::Status {
    skrull_client_batch read;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(stream, "stream"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(ReadBatch(batch, &read));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(CheckStreamBatch(read));
    return stream->stream->Send(read.step, LengthsOf(read), read.attempt);
  });
}

int32_t skrull_client_stream_next(skrull_client_stream* stream,
                                  double timeout_seconds,
                                  skrull_client_answer* answer,
                                  skrull_client_plan** plan) {
  return Call([&]() -> absl::Status {
    skrull_client_answer filled;
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(stream, "stream"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(plan, "plan"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(BeginFilling(answer, "answer", &filled));
    absl::Status status = Next(*stream, timeout_seconds, &filled, plan);
    *answer = filled;
    return status;
  });
}

int32_t skrull_client_stream_pending(const skrull_client_stream* stream,
                                     int32_t* count) {
  return Call([&]() -> absl::Status {
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(stream, "stream"));
    SKRULL_CLIENT_C_RETURN_IF_ERROR(NotNull(count, "count"));
    *count = stream->stream->pending();
    return absl::OkStatus();
  });
}

}  // extern "C"
