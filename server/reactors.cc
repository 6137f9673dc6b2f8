#include "skrull/server/reactors.h"

#include <optional>
#include <string_view>

namespace skrull {
namespace {

// The value of a metadata key; empty if the client sent none, or several.
std::string_view MetadataValue(const grpc::CallbackServerContext& context,
                               const char* key) {
  const auto& metadata = context.client_metadata();
  const auto [first, last] = metadata.equal_range(key);
  if (first == last || std::next(first) != last) return {};
  return {first->second.data(), first->second.size()};
}

}  // namespace

CallInfo BeginCall(RpcMethod method, const CallServices& services,
                   grpc::CallbackServerContext* context) {
  CallInfo call{.method = method,
                .peer = context->peer(),
                .start = services.clock->MonotonicNow()};
  const std::string_view id = MetadataValue(*context, kRequestIdKey);
  call.request_id =
      IsRequestId(id) ? std::string(id) : services.request_ids->Next();
  context->AddInitialMetadata(kRequestIdKey, call.request_id);
  if (auto trace = ParseTraceparent(MetadataValue(*context, kTraceparentKey))) {
    call.trace_id = std::move(trace->trace_id);
    call.span_id = std::move(trace->span_id);
  }
  return call;
}

}  // namespace skrull
