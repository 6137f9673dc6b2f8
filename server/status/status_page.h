// The page at / of the metrics port: what a daemon is doing, for people. Plain
// HTML with its own style sheet; no script, nothing from elsewhere.
#ifndef SKRULL_SERVER_STATUS_STATUS_PAGE_H_
#define SKRULL_SERVER_STATUS_STATUS_PAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "skrull/v1/status.pb.h"

namespace skrull {

// The page. All texts of `status` are escaped, whatever they hold. Pure.
std::string StatusPage(const v1::ServerStatus& status);

// Headers to send it with: a browser that obeys them runs and loads nothing but
// the page and its style sheet.
std::vector<std::pair<std::string, std::string>> StatusPageHeaders();

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_STATUS_PAGE_H_
