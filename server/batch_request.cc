#include "skrull/server/batch_request.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

absl::Status LimitError(const std::string& field, const std::string& what,
                        int64_t value, int64_t limit) {
  return MakeError(
      {.reason = ErrorReason::kLimitExceeded, .field = field, .limit = limit},
      absl::StrCat(field, ": ", value, " ", what, ", this daemon's limit is ",
                   limit));
}

// SHA-256 of the policy and the lengths, each as 8 bytes, little-endian.
std::string RequestDigest(Policy policy, const std::vector<int64_t>& lengths) {
  std::string bytes;
  bytes.reserve(8 * (lengths.size() + 1));
  const auto append = [&](int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes.push_back(static_cast<char>((value >> shift) & 0xff));
    }
  };
  append(static_cast<int64_t>(PolicyToProto(policy)));
  for (int64_t length : lengths) append(length);
  return Sha256Hex(bytes);
}

absl::Status ResolveJob(const Caller& who, const v1::PlanBatchRequest& request,
                        const ServerOptions& options, JobDirectory* jobs,
                        BatchRequest* out) {
  if (request.job().empty() == !request.has_job_spec()) {
    return FieldError("job", "exactly one of job and job_spec must be set");
  }
  if (request.has_job_spec()) {
    if (request.generation() != 0) {
      return FieldError("generation", "a job_spec has no generation");
    }
    absl::StatusOr<Job> job = JobFromProto(request.job_spec());
    if (!job.ok()) return job.status();
    out->spec_job = std::make_shared<const Job>(*std::move(job));
    return CheckRanks(*out->spec_job, options.max_ranks);
  }
  absl::Status status = ValidateJobName(request.job(), "job");
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<RegisteredJob>> job =
      jobs->FindFor(who, Access::kUse, request.job());
  if (!job.ok()) return job.status();
  out->registered = *std::move(job);
  out->calibrated = out->registered->calibrated();
  return out->registered->CheckGeneration(request.generation());
}

}  // namespace

std::string BatchRequest::flight_key() const {
  if (registered == nullptr) return "";
  return absl::StrCat(registered->id(), "/", key.step, "/", key.attempt, "/",
                      commit ? "c" : "v", calibration_epoch(), "/", digest);
}

absl::StatusOr<BatchRequest> ReadBatchRequest(
    const Caller& who, const v1::PlanBatchRequest& request,
    int64_t request_bytes, const ServerOptions& options, JobDirectory* jobs) {
  if (request.lengths_size() > options.max_lengths) {
    return LimitError("lengths", "lengths in one batch", request.lengths_size(),
                      options.max_lengths);
  }
  absl::Status status = CheckRequestBytes(request_bytes, options);
  if (!status.ok()) return status;
  status = CheckStep(request.step(), request.attempt());
  if (!status.ok()) return status;
  const absl::StatusOr<std::optional<Policy>> policy =
      PolicyFromProto(request.policy(), "policy");
  if (!policy.ok()) return policy.status();

  BatchRequest out;
  status = ResolveJob(who, request, options, jobs, &out);
  if (!status.ok()) return status;
  out.key = {request.job(), request.step(), request.attempt()};
  out.lengths.assign(request.lengths().begin(), request.lengths().end());
  out.policy = policy->value_or(out.job().policy());
  out.commit = out.registered != nullptr && !request.validate_only();
  out.digest = RequestDigest(out.policy, out.lengths);
  return out;
}

absl::Status CheckRequestBytes(int64_t request_bytes,
                               const ServerOptions& options) {
  if (request_bytes <= options.max_request_bytes) return absl::OkStatus();
  return LimitError("request", "bytes in one request", request_bytes,
                    options.max_request_bytes);
}

std::string PeekJob(const std::string& first_bytes) {
  // Tag of field 1, length-delimited; then the length, in one or two bytes.
  if (first_bytes.size() < 2 || first_bytes[0] != ((1 << 3) | 2)) return "";
  size_t length = static_cast<uint8_t>(first_bytes[1]);
  size_t begin = 2;
  if (length >= 0x80) {
    if (first_bytes.size() < 3) return "";
    length = (length & 0x7f) |
             static_cast<size_t>(static_cast<uint8_t>(first_bytes[2])) << 7;
    begin = 3;
  }
  return begin + length <= first_bytes.size()
             ? first_bytes.substr(begin, length)
             : "";
}

absl::Status CheckStep(int64_t step, int32_t attempt,
                       const std::string& field_prefix) {
  if (step < 0) {
    return FieldError(field_prefix + "step",
                      absl::StrCat("must be at least 0, is ", step));
  }
  if (attempt < 0 || attempt > kMaxAttempt) {
    return FieldError(
        field_prefix + "attempt",
        absl::StrCat("must be in 0 .. ", kMaxAttempt, ", is ", attempt));
  }
  return absl::OkStatus();
}

absl::Status CheckRanks(const Job& job, int64_t max_ranks) {
  const int64_t ranks = job.pool().ranks();
  if (ranks <= max_ranks) return absl::OkStatus();
  return LimitError("parallelism", "ranks (dp_size * cp_size)", ranks,
                    max_ranks);
}

}  // namespace skrull
