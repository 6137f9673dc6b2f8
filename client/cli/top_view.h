// What `skrullctl top` shows, as text. Pure: no terminal, no clock.
#ifndef SKRULL_CLIENT_CLI_TOP_VIEW_H_
#define SKRULL_CLIENT_CLI_TOP_VIEW_H_

#include <optional>
#include <string>
#include <vector>

#include "skrull/cli/daemon_watch.h"

namespace skrull::cli {

// What the table of jobs is sorted by. Names ascend, numbers descend; equal
// ones stay in the daemon's order, newest plan first.
enum class TopSort {
  kRecent,
  kName,
  kPlans,
  kRate,
  kReports,
  kOutOfMemory,
  kPredicted,
  kGap,
};

// "recent", "name", "plans", "rate", "reports", "oom", "predicted", "gap": in
// the order of TopSort.
const std::vector<std::string>& TopSortNames();
// REQUIRES: `name` is one of them.
TopSort TopSortByName(const std::string& name);

struct TopLayout {
  // Largest screen; 0 = no limit.
  int columns = 0;
  int rows = 0;
  TopSort sort = TopSort::kRecent;
  bool styled = false;   // with ANSI colours
  bool unicode = false;  // load bars of block characters
  // Last line of the screen; empty = none.
  std::string footer = {};
};

// Lines without their ends: a header for each daemon, the table of jobs, the
// table of last plans. With several daemons the tables name each row's daemon.
// What daemons sent is escaped: a line holds printable ASCII, and what the
// layout asks for besides.
std::vector<std::string> TopScreen(const std::vector<DaemonSample>& samples,
                                   const TopLayout& layout);

// One line of JSON for one daemon: {"server", "status", "rates"} or
// {"server", "error"}.
std::string TopJson(const DaemonSample& sample);

// One character for each rank's load, 0 .. 1 and above.
std::string LoadBar(const std::vector<float>& loads, bool unicode);

}  // namespace skrull::cli

#endif  // SKRULL_CLIENT_CLI_TOP_VIEW_H_
