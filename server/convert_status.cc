// Statuses with their typed detail.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "skrull/planner/error.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

// A string field must hold UTF-8, and a message may quote any bytes.
std::string AsciiOnly(const std::string& text) {
  const auto is_ascii = [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
  std::string out;
  for (char c : text) {
    if (is_ascii(c)) {
      out.push_back(c);
    } else {
      out += absl::CHexEscape(std::string(1, c));
    }
  }
  return out;
}

void DurationToProto(double seconds, google::protobuf::Duration* proto) {
  constexpr double kMaxSeconds = 315'576'000'000;  // what a Duration may hold
  if (!(seconds >= 0)) seconds = 0;
  seconds = std::min(seconds, kMaxSeconds);
  const double whole = std::floor(seconds);
  proto->set_seconds(static_cast<int64_t>(whole));
  proto->set_nanos(static_cast<int32_t>((seconds - whole) * 1e9));
}

v1::ErrorDetail DetailToProto(const ErrorDetail& detail) {
  v1::ErrorDetail proto;
  proto.set_reason(ErrorReasonName(detail.reason));
  proto.set_field(AsciiOnly(detail.field));
  const size_t count =
      std::min<size_t>(detail.indices.size(), ErrorDetail::kMaxIndices);
  for (size_t i = 0; i < count; ++i) proto.add_indices(detail.indices[i]);
  if (detail.limit) proto.set_limit(*detail.limit);
  if (detail.retry_after_seconds) {
    DurationToProto(*detail.retry_after_seconds, proto.mutable_retry_after());
  }
  return proto;
}

// nullopt for a reason this version does not know.
std::optional<ErrorDetail> DetailFromProto(const v1::ErrorDetail& proto) {
  for (ErrorReason reason : AllErrorReasons()) {
    if (reason == ErrorReason::kUnspecified ||
        proto.reason() != ErrorReasonName(reason)) {
      continue;
    }
    ErrorDetail detail;
    detail.reason = reason;
    detail.field = proto.field();
    const int count =
        std::min<int>(proto.indices_size(), ErrorDetail::kMaxIndices);
    detail.indices.assign(proto.indices().begin(),
                          proto.indices().begin() + count);
    if (proto.has_limit()) detail.limit = proto.limit();
    if (proto.has_retry_after()) {
      detail.retry_after_seconds =
          static_cast<double>(proto.retry_after().seconds()) +
          1e-9 * static_cast<double>(proto.retry_after().nanos());
    }
    return detail;
  }
  return std::nullopt;
}

}  // namespace

v1::RpcStatus StatusToProto(const absl::Status& status) {
  v1::RpcStatus proto;
  proto.set_code(static_cast<int32_t>(status.code()));
  proto.set_message(AsciiOnly(std::string(status.message())));
  if (std::optional<ErrorDetail> detail = GetErrorDetail(status)) {
    proto.add_details()->PackFrom(DetailToProto(*detail));
  }
  return proto;
}

absl::Status StatusFromProto(const v1::RpcStatus& proto) {
  constexpr int32_t kMaxCode =
      static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (proto.code() == 0) return absl::OkStatus();
  absl::Status status(proto.code() > 0 && proto.code() <= kMaxCode
                          ? static_cast<absl::StatusCode>(proto.code())
                          : absl::StatusCode::kUnknown,
                      proto.message());
  for (const google::protobuf::Any& any : proto.details()) {
    v1::ErrorDetail message;
    if (!any.Is<v1::ErrorDetail>() || !any.UnpackTo(&message)) continue;
    if (std::optional<ErrorDetail> detail = DetailFromProto(message)) {
      // The wire's code stands, whatever the reason usually comes with.
      MakeError(*detail, proto.message())
          .ForEachPayload([&](auto type, const absl::Cord& payload) {
            status.SetPayload(type, payload);
          });
      break;
    }
  }
  return status;
}

}  // namespace skrull
