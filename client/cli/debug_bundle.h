// What `skrullctl debug-bundle` gathers from a daemon and about the client.
//
// Nothing in a bundle is a secret: values of labels are left out of specs, and
// of the environment only what cannot hold one is shown.
#ifndef SKRULL_CLIENT_CLI_DEBUG_BUNDLE_H_
#define SKRULL_CLIENT_CLI_DEBUG_BUNDLE_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "skrull/cli/archive.h"
#include "skrull/client/planner_client.h"

namespace skrull::cli {

struct BundleRequest {
  std::string server;       // its address, for the manifest
  std::string job;          // empty = all, up to a limit
  std::string metrics_url;  // empty = none
  // Longest wait for the metrics page and for a plan.
  std::chrono::milliseconds timeout;
  std::chrono::system_clock::time_point now;
};

// What could not be had, and why.
struct BundleError {
  std::string what;
  absl::Status status;
};

struct Bundle {
  std::vector<ArchivedFile> files;  // manifest.json first
  std::vector<BundleError> errors;  // those that the manifest lists
};

// Asks the daemon. An error leaves a file out and is listed; once the daemon
// could not be reached it is not asked again. The manifest names every other
// file with its size and SHA-256.
Bundle GatherBundle(PlannerClient& client, const BundleRequest& request);

// The JSON text with every value in an object named "labels" replaced. Errors:
// INTERNAL for text that is no JSON.
absl::StatusOr<std::string> WithoutLabels(const std::string& json);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_DEBUG_BUNDLE_H_
