// What ties a log line to the call it is about: request ids, and the trace
// context of the W3C. Knows no wire.
#ifndef SKRULL_SERVER_TRACE_CONTEXT_H_
#define SKRULL_SERVER_TRACE_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skrull {

// Metadata keys.
inline constexpr char kRequestIdKey[] = "x-request-id";
inline constexpr char kTraceparentKey[] = "traceparent";

// True for 1 .. 64 characters of [A-Za-z0-9._-]: what a client may call a
// request.
bool IsRequestId(std::string_view text);

// Makes ids for requests that came without one: "5c1f09ab73d2-1f", never twice
// in a process and, as its first part is random, hardly ever in two.
// Thread-safe.
class RequestIds {
 public:
  RequestIds();

  std::string Next();

 private:
  const std::string process_;
  std::atomic<uint64_t> count_ = 0;
};

// Where a call stands in a distributed trace.
struct TraceContext {
  std::string trace_id;  // 32 lower-case hexadecimal digits, not all 0
  std::string span_id;   // 16

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// Reads a `traceparent` header of any version, as W3C Trace Context, level 1,
// section 3.2 says; nullopt if it is malformed.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

}  // namespace skrull

#endif  // SKRULL_SERVER_TRACE_CONTEXT_H_
