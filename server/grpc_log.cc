#include "skrull/server/grpc_log.h"

#include <cstring>
#include <optional>
#include <vector>

#include "grpc/support/log.h"
#include "skrull/server/log_limiter.h"
#include "skrull/server/mutex.h"

namespace skrull {
namespace {

// Where messages go; gRPC's threads may write at any time, also after the
// GrpcLog is gone. Never destroyed.
struct Route {
  Mutex mutex;
  const Logger* logger SKRULL_GUARDED_BY(mutex) = nullptr;
  const Clock* clock SKRULL_GUARDED_BY(mutex) = nullptr;
  LogLimiter limiter{10};
};

Route& TheRoute() {
  static auto* const route = new Route;
  return *route;
}

void Write(gpr_log_func_args* message) {
  Route& route = TheRoute();
  MutexLock lock(&route.mutex);
  if (route.logger == nullptr) return;
  const std::optional<int64_t> suppressed =
      route.limiter.Pass(route.clock->MonotonicNow());
  if (!suppressed) return;
  const char* const slash = std::strrchr(message->file, '/');
  std::vector<LogField> fields = {
      {"message", message->message},
      {"source", slash == nullptr ? message->file : slash + 1}};
  if (*suppressed > 0) fields.push_back({"suppressed", *suppressed});
  route.logger->Log(LogLevel::kWarning, "grpc", fields);
}

}  // namespace

GrpcLog::GrpcLog(const Logger* logger, const Clock* clock) {
  Route& route = TheRoute();
  MutexLock lock(&route.mutex);
  route.logger = logger;
  route.clock = clock;
  gpr_set_log_function(&Write);
}

GrpcLog::~GrpcLog() {
  Route& route = TheRoute();
  MutexLock lock(&route.mutex);
  route.logger = nullptr;
}

}  // namespace skrull
