#include "skrull/cli/trace_writer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "skrull/planner/chunk_flow/chunk_cost.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kTicksPerSecond = 1e6 * 1024;
constexpr double kMicrosecondsPerTick = 1.0 / 1024;
constexpr size_t kFlushBytes = size_t{1} << 18;

// Processes and threads. None is 0, and a thread's number is one in the whole
// trace: viewers give both a meaning of their own otherwise.
constexpr int64_t kStepsPid = 1;
constexpr int64_t kStepsTid = 1;

int64_t PidOf(int32_t dp_rank) { return kStepsPid + 1 + dp_rank; }

struct Tids {
  int64_t cp_size;

  int64_t MicroBatches(int32_t dp_rank) const {
    return kStepsTid + 1 + dp_rank * (2 * cp_size + 1);
  }
  int64_t Compute(int32_t rank) const {
    const auto dp_rank = static_cast<int32_t>(rank / cp_size);
    return MicroBatches(dp_rank) + 1 + 2 * (rank % cp_size);
  }
  int64_t Exchange(int32_t rank) const { return Compute(rank) + 1; }
};

ordered_json Name(const char* kind, int64_t pid, int64_t tid,
                  const std::string& name) {
  ordered_json event = {{"name", kind}, {"ph", "M"}, {"pid", pid}};
  if (tid > 0) event["tid"] = tid;
  event["args"] = {{"name", name}};
  return event;
}

ordered_json SortIndex(const char* kind, int64_t pid, int64_t tid) {
  ordered_json event = {{"name", kind}, {"ph", "M"}, {"pid", pid}};
  if (tid > 0) event["tid"] = tid;
  event["args"] = {{"sort_index", tid > 0 ? tid : pid}};
  return event;
}

std::string PassName(ChunkPass pass) {
  switch (pass) {
    case ChunkPass::kForward:
      return "forward";
    case ChunkPass::kForwardDiscard:
      return "forward, discarded";
    case ChunkPass::kRecompute:
      return "recompute";
    case ChunkPass::kBackward:
      break;
  }
  return "backward";
}

}  // namespace

TraceWriter::TraceWriter(const Job& job, const Sink& sink)
    : job_(job),
      cost_(job),
      sink_(sink),
      on_rank_(static_cast<size_t>(job.pool().ranks())) {}

double TraceWriter::Ticks(double seconds) const {
  return std::round((begin_ + seconds) * kTicksPerSecond);
}

TraceWriter::Json TraceWriter::Event(const char* phase, const std::string& name,
                                     const std::string& category, int64_t pid,
                                     int64_t tid, double start) const {
  return {{"name", name}, {"cat", category},
          {"ph", phase},  {"ts", Ticks(start) * kMicrosecondsPerTick},
          {"pid", pid},   {"tid", tid}};
}

void TraceWriter::SetDuration(double start, double end, Json* event) const {
  (*event)["dur"] = (Ticks(end) - Ticks(start)) * kMicrosecondsPerTick;
}

void TraceWriter::Emit(const Json& event) {
  absl::StrAppend(&text_, first_ ? "\n" : ",\n",
                  event.dump(-1, ' ', /*ensure_ascii=*/false,
                             Json::error_handler_t::replace));
  first_ = false;
}

absl::Status TraceWriter::FlushIfLong() {
  if (text_.size() < kFlushBytes) return absl::OkStatus();
  absl::Status status = sink_(text_);
  text_.clear();
  return status;
}

void TraceWriter::EmitNames() {
  const PoolShape pool = job_.pool();
  const Tids tids{pool.cp_size};
  Emit(Name("process_name", kStepsPid, 0, "steps"));
  Emit(SortIndex("process_sort_index", kStepsPid, 0));
  Emit(Name("thread_name", kStepsPid, kStepsTid, "steps"));
  for (int32_t d = 0; d < pool.dp_size; ++d) {
    const int64_t pid = PidOf(d);
    const auto thread = [&](int64_t tid, const std::string& name) {
      Emit(Name("thread_name", pid, tid, name));
      Emit(SortIndex("thread_sort_index", pid, tid));
    };
    Emit(Name("process_name", pid, 0, absl::StrCat("DP rank ", d)));
    Emit(SortIndex("process_sort_index", pid, 0));
    thread(tids.MicroBatches(d), "micro-batches");
    for (int32_t c = 0; c < pool.cp_size; ++c) {
      const int32_t rank = d * pool.cp_size + c;
      thread(tids.Compute(rank), absl::StrCat("rank ", rank));
      thread(tids.Exchange(rank), absl::StrCat("rank ", rank, " exchange"));
    }
  }
}

absl::Status TraceWriter::Begin() {
  text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  EmitNames();
  return FlushIfLong();
}

void TraceWriter::EmitMicroBatch(int32_t index,
                                 const MicroBatchPlan& micro_batch,
                                 const StepClock& clock) {
  for (int32_t d = 0; d < job_.pool().dp_size; ++d) {
    const StepClock::Slot slot = clock.slot(d);
    if (slot.end <= slot.start) continue;
    Json event =
        Event("X", absl::StrCat("micro-batch ", index), "micro-batch", PidOf(d),
              Tids{job_.pool().cp_size}.MicroBatches(d), slot.start);
    SetDuration(slot.start, slot.end, &event);
    int64_t tokens = 0;
    int64_t fullest = 0;
    for (int32_t c = 0; c < job_.pool().cp_size; ++c) {
      const int64_t rows =
          clock.loads()[static_cast<size_t>(d * job_.pool().cp_size + c)]
              .tokens;
      tokens += rows;
      fullest = std::max(fullest, rows);
    }
    // Of this DP rank; the micro-batch itself spans all of them.
    event["args"] = {{"micro_batch", index},
                     {"tokens", tokens},
                     {"fullest_rank_tokens", fullest},
                     {"all_tokens", micro_batch.token_count}};
    Emit(event);
  }
}

void TraceWriter::EmitSpan(const RankSpan& span,
                           const MicroBatchPlan* micro_batch) {
  const std::string name = RankActivityName(span.activity);
  const Tids tids{job_.pool().cp_size};
  const bool is_exchange = span.activity == RankActivity::kExchange;
  Json event =
      Event("X", name, name, PidOf(span.rank / job_.pool().cp_size),
            is_exchange ? tids.Exchange(span.rank) : tids.Compute(span.rank),
            span.start);
  SetDuration(span.start, span.end, &event);
  Json args = Json::object();
  if (span.micro_batch != RankSpan::kStepEnd) {
    args["micro_batch"] = span.micro_batch;
  }
  const bool local = span.activity == RankActivity::kLocal ||
                     span.activity == RankActivity::kLinear;
  const bool sharded = span.activity == RankActivity::kSharded ||
                       span.activity == RankActivity::kLinear || is_exchange;
  if (micro_batch != nullptr && (local || sharded)) {
    Json sequences = Json::array();
    Json lengths = Json::array();
    Json degrees = Json::array();
    int64_t tokens = 0;
    for (const SequencePlacement* p :
         on_rank_[static_cast<size_t>(span.rank)]) {
      if (!(p->degree == 1 ? local : sharded)) continue;
      sequences.push_back(p->sequence);
      lengths.push_back(p->token_count);
      degrees.push_back(p->degree);
      tokens += p->token_count;
    }
    // Of whole sequences, also where the rank holds a share.
    args["tokens"] = tokens;
    args["sequences"] = std::move(sequences);
    args["lengths"] = std::move(lengths);
    if (sharded) args["degrees"] = std::move(degrees);
  }
  event["args"] = std::move(args);
  Emit(event);
}

absl::Status TraceWriter::AddPlan(std::span<const int64_t> lengths,
                                  const Plan& plan) {
  const std::string step = absl::StrCat("step ", plan.key.step);
  const PlanSummary& summary = plan.summary;
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  Json mark = Event("i", step, "step", kStepsPid, kStepsTid, 0);
  mark["s"] = "g";
  Emit(mark);
  Json event = Event("X", step, "step", kStepsPid, kStepsTid, 0);
  SetDuration(0, summary.predicted_seconds, &event);
  event["args"] = {{"job", plan.key.job},
                   {"step", plan.key.step},
                   {"attempt", plan.key.attempt},
                   {"policy", PolicyName(plan.policy)},
                   {"digest", EncodePlan(plan).digest},
                   {"sequences", lengths.size()},
                   {"tokens", tokens},
                   {"micro_batches", summary.micro_batch_count},
                   {"sharded_sequences", summary.sharded_sequence_count},
                   {"predicted_seconds", summary.predicted_seconds},
                   {"lower_bound_seconds", summary.lower_bound_seconds}};
  Emit(event);

  absl::Status status =
      plan.chunk_plan ? EmitChunks(*plan.chunk_plan, summary.predicted_seconds)
                      : EmitMicroBatches(plan);
  if (!status.ok()) return status;
  begin_ += summary.predicted_seconds;
  return FlushIfLong();
}

absl::Status TraceWriter::EmitMicroBatches(const Plan& plan) {
  RankTimeline timeline(job_, cost_);
  std::vector<RankSpan> spans;
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    const MicroBatchPlan& micro_batch = plan.micro_batches[i];
    for (auto& placements : on_rank_) placements.clear();
    for (const SequencePlacement& p : micro_batch.placements) {
      for (int32_t r = 0; r < p.degree; ++r) {
        on_rank_[static_cast<size_t>(p.first_rank + r)].push_back(&p);
      }
    }
    spans.clear();
    timeline.Run(micro_batch.placements, &spans);
    EmitMicroBatch(static_cast<int32_t>(i), micro_batch, timeline.clock());
    for (const RankSpan& span : spans) {
      EmitSpan(span, &micro_batch);
      absl::Status status = FlushIfLong();
      if (!status.ok()) return status;
    }
  }
  spans.clear();
  timeline.Finish(&spans);
  for (const RankSpan& span : spans) EmitSpan(span, nullptr);
  return absl::OkStatus();
}

absl::Status TraceWriter::EmitChunks(const ChunkPlan& plan, double end) {
  const ChunkCost chunk_cost(job_, cost_);
  const Tids tids{plan.cp_size};
  for (const ChunkSchedule& schedule : plan.schedules) {
    const int32_t first_rank = schedule.dp_rank * plan.cp_size;
    const auto emit = [&](const std::string& name, const std::string& category,
                          double start, double stop, const Json& args,
                          bool of_dp_rank) {
      std::vector<int64_t> threads;
      if (of_dp_rank) threads.push_back(tids.MicroBatches(schedule.dp_rank));
      for (int32_t c = 0; c < plan.cp_size; ++c) {
        threads.push_back(tids.Compute(first_rank + c));
      }
      for (const int64_t tid : threads) {
        Json event =
            Event("X", name, category, PidOf(schedule.dp_rank), tid, start);
        SetDuration(start, stop, &event);
        event["args"] = args;
        Emit(event);
      }
    };
    double at = 0;
    for (const ChunkOperation& operation : schedule.operations) {
      const Chunk& chunk = plan.chunks[static_cast<size_t>(operation.chunk)];
      const double stop = at + chunk_cost.PassSeconds(chunk, operation.pass);
      Json sequences = Json::array();
      for (const ChunkPiece& piece : chunk.pieces) {
        sequences.push_back(piece.sequence);
      }
      const std::string pass = PassName(operation.pass);
      emit(absl::StrCat("chunk ", operation.chunk, " ", pass), pass, at, stop,
           {{"chunk", operation.chunk},
            {"group_index", chunk.group_index},
            {"group_size", chunk.group_size},
            {"tokens", chunk.token_count},
            {"sequences", std::move(sequences)}},
           /*of_dp_rank=*/true);
      at = stop;
      absl::Status status = FlushIfLong();
      if (!status.ok()) return status;
    }
    if (Ticks(at) < Ticks(end)) {
      emit("idle", "idle", at, end, Json::object(), /*of_dp_rank=*/false);
    }
  }
  return absl::OkStatus();
}

absl::Status TraceWriter::AddRefusal(int64_t step, const absl::Status& why) {
  Json mark = Event("i", absl::StrCat("step ", step, " refused"), "refused",
                    kStepsPid, kStepsTid, 0);
  mark["s"] = "g";
  mark["args"] = {{"code", absl::StatusCodeToString(why.code())},
                  {"message", std::string(why.message())}};
  Emit(mark);
  return FlushIfLong();
}

absl::Status TraceWriter::End() {
  text_ += "\n]}\n";
  return sink_(text_);
}

}  // namespace skrull::cli
