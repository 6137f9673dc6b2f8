#include "skrull/server/trace_context.h"

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace skrull {
namespace {

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

bool IsRequestId(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  return !text.empty() && text.size() <= kMaxBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '.' || c == '_' || c == '-';
         });
}

RequestIds::RequestIds()
    : process_([] {
        std::random_device random;
        return absl::StrFormat("%08x%04x", random(), random() & 0xffff);
      }()) {}

std::string RequestIds::Next() {
  return absl::StrFormat("%s-%x", process_,
                         count_.fetch_add(1, std::memory_order_relaxed));
}

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  // version "-" trace-id "-" parent-id "-" trace-flags
  constexpr size_t kBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  if (header.size() < kBytes) return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  const std::string_view trace_id = header.substr(3, 32);
  const std::string_view span_id = header.substr(36, 16);
  const std::string_view flags = header.substr(53, 2);
  if (header[2] != '-' || header[35] != '-' || header[52] != '-' ||
      !IsLowerHex(version) || !IsLowerHex(trace_id) || !IsLowerHex(span_id) ||
      !IsLowerHex(flags) || version == "ff" || IsZero(trace_id) ||
      IsZero(span_id)) {
    return std::nullopt;
  }
  // Later versions may add fields, the first one not.
  if (header.size() > kBytes && (version == "00" || header[kBytes] != '-')) {
    return std::nullopt;
  }
  return TraceContext{.trace_id = std::string(trace_id),
                      .span_id = std::string(span_id)};
}

}  // namespace skrull
