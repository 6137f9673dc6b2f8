// What gRPC has to say goes to the daemon's log: in the log's form, and no more
// of it than the log can take. A client that fails a TLS handshake makes gRPC
// write a line each time.
#ifndef SKRULL_SERVER_GRPC_LOG_H_
#define SKRULL_SERVER_GRPC_LOG_H_

#include "skrull/server/clock.h"
#include "skrull/server/log.h"

namespace skrull {

// Routes gRPC's messages for as long as it lives: warnings, event `grpc`, of
// which 10 a second are written. REQUIRES: one at a time in a process, since
// gRPC has one log. Thread-safe.
class GrpcLog {
 public:
  // Both must outlive the object.
  GrpcLog(const Logger* logger, const Clock* clock);
  ~GrpcLog();
  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_GRPC_LOG_H_
