#include "skrull/client/refusal.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "skrull/client/internal/wire.h"

namespace skrull {
namespace {

// The payload is a serialized skrull.v1.ErrorDetail under its Any type URL, as
// tools that print statuses expect.
constexpr char kPayloadUrl[] = "type.googleapis.com/skrull.v1.ErrorDetail";

}  // namespace

std::optional<RefusalDetail> GetRefusalDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  v1::ErrorDetail wire;
  if (!payload || !wire.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  RefusalDetail detail;
  detail.reason = wire.reason();
  detail.field = wire.field();
  detail.indices.assign(wire.indices().begin(), wire.indices().end());
  if (wire.has_limit()) detail.limit = wire.limit();
  if (wire.has_retry_after()) {
    detail.retry_after_seconds =
        static_cast<double>(wire.retry_after().seconds()) +
        1e-9 * static_cast<double>(wire.retry_after().nanos());
  }
  return detail;
}

std::string GetRequestId(const absl::Status& status) {
  const absl::optional<absl::Cord> payload =
      status.GetPayload(client_internal::kRequestIdUrl);
  return payload ? std::string(*payload) : std::string();
}

std::string MessageWithoutRequestId(const absl::Status& status) {
  std::string message(status.message());
  const std::string end =
      client_internal::RequestIdSuffix(GetRequestId(status));
  if (message.ends_with(end)) message.resize(message.size() - end.size());
  return message;
}

namespace client_internal {

std::string RequestIdSuffix(const std::string& request_id) {
  return " (request " + request_id + ")";
}

absl::Status MakeStatus(absl::StatusCode code, const std::string& message,
                        const RefusalDetail& detail) {
  v1::ErrorDetail wire;
  wire.set_reason(detail.reason);
  wire.set_field(detail.field);
  wire.mutable_indices()->Assign(detail.indices.begin(), detail.indices.end());
  if (detail.limit) wire.set_limit(*detail.limit);
  absl::Status status(code, message);
  status.SetPayload(kPayloadUrl, absl::Cord(wire.SerializeAsString()));
  return status;
}

absl::Status StatusFromWire(const v1::RpcStatus& wire) {
  constexpr int kMaxCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  if (wire.code() == 0) return absl::OkStatus();
  absl::Status status(wire.code() > 0 && wire.code() <= kMaxCode
                          ? static_cast<absl::StatusCode>(wire.code())
                          : absl::StatusCode::kUnknown,
                      wire.message());
  for (const google::protobuf::Any& detail : wire.details()) {
    if (!detail.Is<v1::ErrorDetail>()) continue;
    status.SetPayload(kPayloadUrl, absl::Cord(detail.value()));
    break;
  }
  return status;
}

}  // namespace client_internal
}  // namespace skrull
