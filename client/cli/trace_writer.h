// Plans as a trace: JSON in the Trace Event Format, which Perfetto and
// chrome://tracing read.
//
// A process for each DP rank, in it a thread for its micro-batches and for each
// rank one that computes and one that exchanges, and a process for the steps.
// Spans are complete events ("X") whose category is the activity; a global
// instant ("i") marks where a step begins. docs/reports.md lists all of it.
#ifndef SKRULL_CLIENT_CLI_TRACE_WRITER_H_
#define SKRULL_CLIENT_CLI_TRACE_WRITER_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "skrull/planner/cost_model.h"
#include "skrull/planner/job.h"
#include "skrull/planner/plan.h"
#include "skrull/planner/rank_timeline.h"

namespace skrull::cli {

// Writes as it goes: holds one micro-batch's spans, never the trace. Not
// thread-safe. Any job name is safe input.
//
// Times are multiples of 2^-10 microseconds, about a nanosecond. Those are
// exact in JSON and in doubles, so that spans that touch still touch, and never
// overlap, in a viewer that adds or truncates to whole nanoseconds.
class TraceWriter {
 public:
  // Takes the next piece of the text.
  using Sink = std::function<absl::Status(const std::string&)>;

  // Call Begin(), then Add...() step by step, then End(). Errors of all: those
  // of `sink`. `job` must outlive the writer.
  TraceWriter(const Job& job, const Sink& sink);

  absl::Status Begin();
  // A step right after the one before. REQUIRES: the plan is legal for the job,
  // of a batch of `lengths`. O(ranks * micro-batches, or operations, + text).
  absl::Status AddPlan(std::span<const int64_t> lengths, const Plan& plan);
  // A mark in the place of a step that has no plan.
  absl::Status AddRefusal(int64_t step, const absl::Status& why);
  absl::Status End();

 private:
  using Json = nlohmann::ordered_json;

  void Emit(const Json& event);
  void EmitNames();
  void EmitSpan(const RankSpan& span, const MicroBatchPlan* micro_batch);
  void EmitMicroBatch(int32_t index, const MicroBatchPlan& micro_batch,
                      const StepClock& clock);
  absl::Status EmitMicroBatches(const Plan& plan);
  // What the chunks' DP ranks do, pass by pass: on the thread of its
  // micro-batches, and on that of each of its ranks, which all do the same.
  absl::Status EmitChunks(const ChunkPlan& plan, double end);
  Json Event(const char* phase, const std::string& name,
             const std::string& category, int64_t pid, int64_t tid,
             double start) const;
  void SetDuration(double start, double end, Json* event) const;
  double Ticks(double seconds) const;  // of the trace, from those of a step
  absl::Status FlushIfLong();

  const Job& job_;
  const CostModel cost_;
  const Sink sink_;
  std::string text_;   // not yet in the sink
  double begin_ = 0;   // of the step being written, seconds
  bool first_ = true;  // no event was written
  std::vector<std::vector<const SequencePlacement*>> on_rank_;
};

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_TRACE_WRITER_H_
