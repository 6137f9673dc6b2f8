#include <langinfo.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/daemon_watch.h"
#include "skrull/cli/io.h"
#include "skrull/cli/plan_source.h"
#include "skrull/cli/terminal.h"
#include "skrull/cli/top_view.h"

namespace skrull::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct TopFlags {
  // `address` may name several, with commas between. A short timeout, so that a
  // daemon that hangs does not hold up the others.
  ServerFlags server = {.timeout_seconds = 2};
  double interval_seconds = 2;
  bool once = false;
  bool interval_given = false;
  std::string sort = TopSortNames().front();
  std::string format = "text";
  int32_t max_jobs = 100;
  int32_t max_plans = 50;

  milliseconds interval() const {
    return milliseconds(static_cast<int64_t>(1e3 * interval_seconds));
  }
};

absl::StatusOr<std::unique_ptr<DaemonWatch>> ConnectAll(const TopFlags& flags) {
  std::vector<DaemonWatch::Daemon> daemons;
  const std::vector<std::string> addresses =
      absl::StrSplit(ServerOrDefault(flags.server.address), ',');
  for (const std::string& address : addresses) {
    ServerFlags server = flags.server;
    server.address = address;
    absl::StatusOr<std::unique_ptr<PlannerClient>> client = Connect(server);
    if (!client.ok()) return client.status();
    daemons.push_back({address, *std::move(client)});
  }
  return std::make_unique<DaemonWatch>(std::move(daemons), flags.max_jobs,
                                       flags.max_plans);
}

bool IsUtf8() {
  std::setlocale(LC_CTYPE, "");
  const bool utf8 = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  std::setlocale(LC_CTYPE, "C");
  return utf8;
}

int ExitCodeOf(const std::vector<DaemonSample>& samples) {
  return std::all_of(samples.begin(), samples.end(),
                     [](const DaemonSample& s) { return s.status.ok(); })
             ? kExitOk
             : kExitRefused;
}

// For pipes and files: the answers one below the other, until the output ends.
int PrintRounds(DaemonWatch& watch, const TopFlags& flags) {
  const TopLayout layout = {.sort = TopSortByName(flags.sort),
                            .unicode = IsUtf8()};
  while (true) {
    const auto next = steady_clock::now() + flags.interval();
    watch.StartRound();
    while (!watch.WaitForRound(milliseconds(1000))) {
    }
    const std::vector<DaemonSample> samples = watch.TakeRound();
    std::string text;
    if (flags.format == "json") {
      for (const DaemonSample& sample : samples) text += TopJson(sample);
    } else {
      text = absl::StrJoin(TopScreen(samples, layout), "\n") + "\n";
      if (!flags.once) text += "\n";
    }
    if (!WriteOutput(text)) {
      PrintError("cannot write to the standard output");
      return kExitUsage;
    }
    if (flags.once) return ExitCodeOf(samples);
    std::this_thread::sleep_until(next);
  }
}

// The live view. Asks in the background, so that keys and signals are answered
// also while a daemon is not.
class Live {
 public:
  Live(DaemonWatch* watch, const TopFlags& flags)
      : watch_(watch),
        interval_(flags.interval()),
        layout_({.sort = TopSortByName(flags.sort),
                 .styled = std::getenv("NO_COLOR") == nullptr,
                 .unicode = IsUtf8()}) {}

  // Until a key, a signal or the end of the terminal ends it.
  void Run(Terminal& terminal) {
    constexpr milliseconds kTick(50);  // while answers are under way
    watch_->StartRound();
    bool asking = true;
    auto next = steady_clock::now() + interval_;
    bool draw = true;
    while (!draw || Draw(terminal)) {
      draw = false;
      if (asking && watch_->WaitForRound(milliseconds(0))) {
        samples_ = watch_->TakeRound();
        asking = false;
        draw = true;
        continue;
      }
      const auto now = steady_clock::now();
      if (!asking && now >= next) {
        watch_->StartRound();
        asking = true;
        next = now + interval_;
      }
      const Terminal::Event event = terminal.Wait(
          asking ? kTick
                 : std::chrono::ceil<milliseconds>(
                       std::max(next - now, steady_clock::duration::zero())));
      switch (event.kind) {
        case Terminal::Event::Kind::kTimeout:
          break;
        case Terminal::Event::Kind::kResize:
          draw = true;
          break;
        case Terminal::Event::Kind::kStop:
          return;
        case Terminal::Event::Kind::kKey:
          if (event.key == 'q') return;
          if (event.key == 's') {
            layout_.sort =
                static_cast<TopSort>((static_cast<size_t>(layout_.sort) + 1) %
                                     TopSortNames().size());
          }
          draw = true;
          break;
      }
    }
  }

 private:
  bool Draw(Terminal& terminal) {
    const Terminal::Size size = terminal.size();
    layout_.columns = size.columns;
    layout_.rows = size.rows;
    layout_.footer = absl::StrCat(
        samples_.empty() ? "asking...  " : "", "q quits, s sorts (by ",
        TopSortNames()[static_cast<size_t>(layout_.sort)], ")");
    return terminal.Draw(TopScreen(samples_, layout_));
  }

  DaemonWatch* const watch_;
  const milliseconds interval_;
  TopLayout layout_;
  std::vector<DaemonSample> samples_;
};

int RunTop(TopFlags flags) {
  const bool terminal_wanted =
      !flags.once && flags.format == "text" && OutputIsTerminal();
  if (!OutputIsTerminal() && !flags.interval_given) flags.once = true;

  // Before any thread: see terminal.h. The watch outlives it, so that the
  // screen is back before the last answer is waited for.
  std::unique_ptr<DaemonWatch> watch;
  std::optional<Terminal> terminal;
  if (terminal_wanted) terminal.emplace();
  absl::StatusOr<std::unique_ptr<DaemonWatch>> connected = ConnectAll(flags);
  if (!connected.ok()) {
    terminal.reset();
    PrintError(std::string(connected.status().message()));
    return kExitUsage;
  }
  watch = *std::move(connected);
  if (!terminal) return PrintRounds(*watch, flags);
  Live(watch.get(), flags).Run(*terminal);
  return kExitOk;
}

}  // namespace

void AddTopCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "top",
      "Watch daemons: how busy they are, their jobs, and the plans they made "
      "last. Redraws a terminal until q or Ctrl-C; without one, prints once, "
      "or "
      "again and again when --interval is given. --server may name several, "
      "with "
      "commas between.");
  auto flags = std::make_shared<TopFlags>();
  AddServerOptions(command, &flags->server);
  CLI::Option* interval =
      command
          ->add_option("--interval", flags->interval_seconds,
                       "From one refresh to the next. Default: 2")
          ->type_name("SECONDS")
          ->check(CLI::Range(0.1, 3600.0));
  command->add_flag("--once", flags->once, "Print once and end")
      ->excludes(interval);
  command
      ->add_option("--sort", flags->sort,
                   "What the table of jobs is sorted by. Default: recent")
      ->type_name("COLUMN")
      ->check(CLI::IsMember(TopSortNames()));
  command
      ->add_option("--jobs", flags->max_jobs,
                   "Most jobs of a daemon. Default: 100")
      ->type_name("COUNT")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--plans", flags->max_plans,
                   "Most plans of a daemon. Default: 50")
      ->type_name("COUNT")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--format", flags->format,
                   "What to show: tables, or one JSON object a line for each "
                   "daemon and refresh; seconds are since 1970. Default: text")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
  command->footer(
      "Example:\n  skrullctl top --once\n"
      "Exit codes: 0 shown; 1 when printing once and some daemon did not "
      "answer; 2 usage.");
  command->callback([flags, interval, exit_code] {
    flags->interval_given = interval->count() > 0;
    *exit_code = RunTop(*flags);
  });
}

}  // namespace skrull::cli
