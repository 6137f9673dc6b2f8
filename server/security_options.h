// What the options of security mean together.
#ifndef SKRULL_SERVER_SECURITY_OPTIONS_H_
#define SKRULL_SERVER_SECURITY_OPTIONS_H_

#include "absl/status/status.h"
#include "skrull/server/options.h"

namespace skrull {

// Errors: INVALID_ARGUMENT naming the option at fault:
//  - a certificate without a key, or a key or client authorities without a
//    certificate;
//  - plaintext where other machines reach the daemon, unless it is allowed;
//  - tokens in such plaintext, whatever is allowed: whoever listens has them.
absl::Status CheckSecurity(const ServerOptions& options);

// Whether reflection is answered.
bool ServesReflection(const ServerOptions& options);

}  // namespace skrull

#endif  // SKRULL_SERVER_SECURITY_OPTIONS_H_
