#include "skrull/server/option_registry.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "skrull/planner/error.h"
#include "skrull/server/etcd/etcd_uri.h"

namespace skrull {
namespace {

absl::Status BadValue(const Option& option, const std::string& value) {
  return FieldError(
      option.name,
      absl::StrCat("\"", absl::CHexEscape(value), "\" is not ", option.type,
                   option.range.empty() ? "" : " in ", option.range));
}

// The shortest text that reads back as the same number.
std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

Option Integer(const std::string& name, int64_t ServerOptions::* member,
               int64_t least, int64_t most, const std::string& help) {
  Option option;
  option.name = name;
  option.type = "an integer";
  option.range = absl::StrCat(least, "..", most);
  option.help = help;
  option.get = [member](const ServerOptions& options) {
    return absl::StrCat(options.*member);
  };
  const Option description = option;
  option.set = [=](const std::string& value, ServerOptions* options) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < least || number > most) {
      return BadValue(description, value);
    }
    options->*member = number;
    return absl::OkStatus();
  };
  return option;
}

Option Seconds(const std::string& name, double ServerOptions::* member,
               double least, double most, const std::string& help) {
  Option option;
  option.name = name;
  option.type = "a number of seconds";
  option.range = absl::StrCat(NumberText(least), "..", NumberText(most));
  option.help = help;
  option.get = [member](const ServerOptions& options) {
    return NumberText(options.*member);
  };
  const Option description = option;
  option.set = [=](const std::string& value, ServerOptions* options) {
    double number = 0;
    if (!absl::SimpleAtod(value, &number) ||
        !(number >= least && number <= most)) {
      return BadValue(description, value);
    }
    options->*member = number;
    return absl::OkStatus();
  };
  return option;
}

// One of a closed set of words.
template <typename T>
Option Choice(const std::string& name, T ServerOptions::* member,
              const std::vector<std::pair<std::string, T>>& words,
              const std::string& help) {
  Option option;
  option.name = name;
  option.type = "one of";
  option.help = help;
  option.range = absl::StrJoin(
      words, ", ",
      [](std::string* out, const auto& w) { absl::StrAppend(out, w.first); });
  option.get = [=](const ServerOptions& options) {
    for (const auto& [word, value] : words) {
      if (value == options.*member) return word;
    }
    return std::string();
  };
  const Option description = option;
  option.set = [=](const std::string& text, ServerOptions* options) {
    for (const auto& [word, value] : words) {
      if (word != text) continue;
      options->*member = value;
      return absl::OkStatus();
    }
    return FieldError(description.name,
                      absl::StrCat("\"", absl::CHexEscape(text),
                                   "\" is not one of ", description.range));
  };
  return option;
}

// A text for which `valid` holds; `form` describes what that is.
Option Text(const std::string& name, std::string ServerOptions::* member,
            const std::string& form, bool (*valid)(const std::string&),
            const std::string& help) {
  Option option;
  option.name = name;
  option.type = form;
  option.help = help;
  option.get = [member](const ServerOptions& options) {
    return options.*member;
  };
  const Option description = option;
  option.set = [=](const std::string& value, ServerOptions* options) {
    if (!valid(value)) return BadValue(description, value);
    options->*member = value;
    return absl::OkStatus();
  };
  return option;
}

bool IsHostAndPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find(':') != std::string::npos) return false;
  const std::string digits = text.substr(colon + 1);
  int32_t port = 0;
  return digits.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(digits, &port) && port <= 65535 &&
         text.find_first_of(" \t,/") == std::string::npos;
}

bool IsListenAddress(const std::string& text) {
  return IsHostAndPort(text) ||
         (text.rfind("unix:", 0) == 0 && text.size() > 5);
}

bool IsMetricsAddress(const std::string& text) {
  return text.empty() || IsHostAndPort(text);
}

// A path; what is wrong with it shows when it is opened.
bool IsAnyText(const std::string& /*text*/) { return true; }

bool IsStore(const std::string& text) {
  return text == "memory" ||
         (text.rfind("sqlite:", 0) == 0 && text.size() > 7) ||
         ParseEtcdUri(text).ok();
}

std::vector<Option> MakeRegistry() {
  using O = ServerOptions;
  const std::vector<std::pair<std::string, bool>> booleans = {{"true", true},
                                                              {"false", false}};
  const std::vector<std::pair<std::string, Reflection>> reflections = {
      {"auto", Reflection::kAuto},
      {"true", Reflection::kOn},
      {"false", Reflection::kOff}};
  const std::vector<std::pair<std::string, ClientCertificates>>
      client_certificates = {{"required", ClientCertificates::kRequired},
                             {"optional", ClientCertificates::kOptional}};
  const std::vector<std::pair<std::string, LogLevel>> levels = {
      {"error", LogLevel::kError},
      {"warning", LogLevel::kWarning},
      {"info", LogLevel::kInfo},
      {"debug", LogLevel::kDebug}};
  const std::vector<std::pair<std::string, LogFormat>> formats = {
      {"text", LogFormat::kText}, {"json", LogFormat::kJson}};
  const std::vector<std::pair<std::string, std::vector<Option>>> sections = {
      {"Addresses",
       {
           Text("listen_address", &O::listen_address, "HOST:PORT or unix:PATH",
                IsListenAddress,
                "Where the daemon serves gRPC. Port 0 takes a free port. Only "
                "this machine reaches the default; any other address needs "
                "`tls_cert_file`, or `allow_plaintext`."),
           Text("metrics_address", &O::metrics_address,
                "HOST:PORT, or empty for none", IsMetricsAddress,
                "Where the daemon serves Prometheus metrics, at /metrics over "
                "HTTP. Port 0 takes a free port. The page is neither encrypted "
                "nor does it ask who reads it; it holds no secrets."),
           Choice("reflection", &O::reflection, reflections,
                  "Answer gRPC server reflection, which generic command-line "
                  "clients need. `auto`: where `listen_address` reaches this "
                  "machine alone. It asks for no token, and tells of the "
                  "service's methods only."),
       }},
      {"Security",
       {
           Text("tls_cert_file", &O::tls_cert_file, "PATH, or empty for no TLS",
                IsAnyText,
                "Certificate chain of the daemon, PEM, its own certificate "
                "first. The TLS files are read again when they change; new "
                "connections then use them. Files that do not fit together "
                "are refused with an error in the log, and the old ones stay "
                "in use. TLS 1.2 and newer."),
           Text("tls_key_file", &O::tls_key_file, "PATH, or empty", IsAnyText,
                "Private key of `tls_cert_file`, PEM, without a passphrase."),
           Text("tls_client_ca_file", &O::tls_client_ca_file,
                "PATH, or empty for no client certificates", IsAnyText,
                "Authorities, PEM, that clients' certificates must come from. "
                "Needs `tls_cert_file`."),
           Choice("tls_client_certificates", &O::tls_client_certificates,
                  client_certificates,
                  "With `tls_client_ca_file`: whether a client may come "
                  "without a certificate. One that comes with a wrong "
                  "certificate is always turned away."),
           Text("auth_file", &O::auth_file,
                "PATH, or empty for no access control", IsAnyText,
                "Who may call, one a line: SUBJECT ROLE HOW. ROLE is admin, "
                "owner (creates jobs and uses its own) or reader (looks at "
                "all); HOW is `sha256:` and the hexadecimal SHA-256 of a "
                "bearer token, or `cert` for a client certificate that names "
                "SUBJECT. `skrullctl token new` makes lines. Read again when "
                "it changes; a file with a mistake is refused with an error "
                "in the log, and the old one stays in force. Empty: everyone "
                "is admin. Beyond this machine it needs `tls_cert_file`."),
           Choice("allow_plaintext", &O::allow_plaintext, booleans,
                  "Serve without TLS on an address that other machines reach: "
                  "whoever can reach it can read and change every job. For "
                  "networks that protect the daemon by other means."),
       }},
      {"Storage",
       {
           Text("store", &O::store,
                "memory, sqlite:PATH or etcd://HOST:PORT[,HOST:PORT...]/PREFIX",
                IsStore,
                "Where jobs, plans and reports are kept. With `memory` nothing "
                "survives the process. `sqlite:PATH` is a database file, made "
                "when missing, that one daemon at a time may hold; a plan is "
                "on disk before it is answered. Deployments want "
                "`sqlite:PATH`: without it a restart in the middle of a step "
                "forgets the plan that some ranks already run. "
                "`etcd://HOST:PORT,.../PREFIX` keeps all under the keys "
                "/PREFIX/ of an etcd cluster, whose members are listed; any "
                "number of daemons may share it as replicas."),
           Integer("kept_steps", &O::kept_steps, 1, 1 << 20,
                   "Steps kept per job, those committed last. A step that was "
                   "forgotten can be planned anew."),
       }},
      {"etcd",
       {
           Seconds("etcd_timeout_seconds", &O::etcd_timeout_seconds, 0.1, 300,
                   "Longest time that one read or change of an etcd store may "
                   "take, with all attempts at all members; after it the call "
                   "fails with STORE_FAILED. A daemon that cannot reach etcd "
                   "for so long when it starts exits with status 1."),
           Text("etcd_ca_file", &O::etcd_ca_file, "PATH, or empty for none",
                IsAnyText,
                "PEM file of the authority that signed the certificates of "
                "etcd's members. Empty: connections to etcd are not "
                "encrypted. The three files are read when the daemon starts."),
           Text("etcd_cert_file", &O::etcd_cert_file, "PATH, or empty for none",
                IsAnyText,
                "PEM file of the certificate that this daemon shows to etcd, "
                "with `etcd_key_file`; for an etcd that asks for one."),
           Text("etcd_key_file", &O::etcd_key_file, "PATH, or empty for none",
                IsAnyText, "PEM file of that certificate's private key."),
       }},
      {"Limits",
       {
           Integer("max_jobs", &O::max_jobs, 1, 10'000'000,
                   "Most registered jobs. One more is refused with "
                   "LIMIT_EXCEEDED."),
           Integer("max_ranks", &O::max_ranks, 1, 1 << 20,
                   "Most ranks, dp_size * cp_size, of a job. A larger one is "
                   "refused with LIMIT_EXCEEDED."),
           Integer("max_lengths", &O::max_lengths, 1, 1 << 30,
                   "Most sequences in one batch. A larger batch is refused "
                   "with LIMIT_EXCEEDED."),
           Integer(
               "max_request_bytes", &O::max_request_bytes, 4096, 1 << 30,
               "Largest request, bytes; one beyond it is refused with "
               "LIMIT_EXCEEDED, and one four times as large is not read at "
               "all: gRPC itself refuses it. A length takes at most 5 bytes."),
       }},
      {"Work in progress",
       {
           Integer("planning_threads", &O::planning_threads, 1, 1024,
                   "Threads that plan. One batch is planned by one thread; "
                   "plans do not depend on this number."),
           Integer("planning_queue", &O::planning_queue, 1, 1 << 20,
                   "Most batches that wait for a planning thread. One more is "
                   "refused with QUEUE_FULL and a time to retry after."),
           Integer(
               "max_waiting_calls", &O::max_waiting_calls, 1, 1 << 20,
               "Most GetRankPlan calls that wait for a plan to be committed, "
               "and most Rendezvous calls that wait for other ranks. One more "
               "of either is refused with LIMIT_EXCEEDED and a time to retry "
               "after. At least the ranks of all jobs that run at once."),
           Seconds(
               "max_wait_seconds", &O::max_wait_seconds, 0.001, 86400,
               "Longest wait of one GetRankPlan or Rendezvous call, if its own "
               "deadline is later. A call without a deadline waits 30 seconds "
               "at most."),
       }},
      {"Overload",
       {
           Seconds("max_queue_seconds", &O::max_queue_seconds, 0.001, 3600,
                   "Longest time that a job's batch is let wait for a "
                   "planning thread behind others of the job: one whose turn "
                   "is expected later is refused at once with QUEUE_FULL and "
                   "a time to retry after. Turns are fair to jobs, so a job's "
                   "own backlog counts, and the turns of others that come "
                   "before its end; not the batches that are being planned. A "
                   "batch that takes long itself may wait for eight times as "
                   "long as it takes."),
           Integer("planning_queue_bytes", &O::planning_queue_bytes, 1 << 20,
                   int64_t{1} << 40,
                   "Most memory, bytes, that the batches waiting for a "
                   "planning thread may hold; one more is refused with "
                   "QUEUE_FULL. A single batch may wait whatever it holds. "
                   "At least a few times max_request_bytes."),
       }},
      {"Quotas",
       {
           Integer("quota_jobs", &O::quota_jobs, 0, 10'000'000,
                   "Most jobs of one owner; one more is refused with "
                   "QUOTA_EXCEEDED. 0: no quota. Without authentication "
                   "jobs have no owner, and there is no such quota."),
           Integer("quota_lengths_per_second", &O::quota_lengths_per_second, 0,
                   1'000'000'000'000,
                   "Lengths a second that one client may have planned, on "
                   "average; a client that sent none for ten seconds may "
                   "send ten seconds' worth at once. Every answered batch "
                   "counts, one that was planned before included. The "
                   "batch that exceeds the quota is still planned, and the "
                   "next ones are refused with QUOTA_EXCEEDED and a time to "
                   "retry after, until it is made up for. 0: no quota. A "
                   "client is an authenticated caller; without "
                   "authentication it is a job, and for batches without a "
                   "job the peer's address."),
           Integer("quota_concurrent_plans", &O::quota_concurrent_plans, 0,
                   1 << 20,
                   "Batches of one client that may wait for a planning "
                   "thread or be planned at the same time; identical ones "
                   "count once. One more is refused with QUOTA_EXCEEDED and "
                   "a time to retry after. 0: no quota."),
       }},
      {"Connections",
       {
           Integer("max_connection_calls", &O::max_connection_calls, 1, 1 << 20,
                   "Most calls of one connection that are under way; a stream "
                   "is one. Its client holds further calls back until one is "
                   "answered, which counts towards their deadlines, so it "
                   "must be more than the ranks that wait in GetRankPlan or "
                   "Rendezvous on one connection: else they keep out the call "
                   "that they wait for. It bounds what a connection makes the "
                   "daemon hold, some 20 KB a call. The default: a full "
                   "planning_queue, and as many calls that wait for others."),
           Seconds("keepalive_seconds", &O::keepalive_seconds, 1, 86400,
                   "Silence on a connection after which the daemon pings the "
                   "client."),
           Seconds("keepalive_timeout_seconds", &O::keepalive_timeout_seconds,
                   0.1, 3600,
                   "Wait for the answer to a ping before the connection is "
                   "closed."),
           Seconds("min_ping_seconds", &O::min_ping_seconds, 0.1, 3600,
                   "Shortest time between two pings of a client, idle ones "
                   "included; a client that pings faster is disconnected. "
                   "Keep it below the clients' keepalive time."),
       }},
      {"Process",
       {
           Seconds("drain_seconds", &O::drain_seconds, 0, 3600,
                   "After SIGTERM or SIGINT, longest time that calls in "
                   "progress may take to finish before they are cancelled. "
                   "New calls are refused with DRAINING at once."),
           Choice("log_level", &O::log_level, levels,
                  "Least severe log lines that are written, to standard "
                  "error."),
       }},
      {"Observation",
       {
           Choice("log_format", &O::log_format, formats,
                  "Form of a log line: `text` for people, or `json`, one "
                  "object with `time`, `level`, `event` and the event's "
                  "fields."),
           Seconds("slow_call_seconds", &O::slow_call_seconds, 0, 86400,
                   "A call that takes longer than this to answer is logged as "
                   "slow; of StreamPlans, a batch. GetRankPlan and Rendezvous "
                   "wait for others and are never slow. 0: no call is."),
           Choice("status_page", &O::status_page, booleans,
                  "Serve a page for people at / of metrics_address: the "
                  "daemon, its jobs and their latest plans. It names jobs and "
                  "their owners to all who reach that address."),
           Integer("job_metrics", &O::job_metrics, 0, 10'000,
                   "Most jobs that have metrics of their own, those that were "
                   "active last; 0: none has. They name jobs to all who reach "
                   "metrics_address, and cost Prometheus seven series a job."),
           Seconds("job_metrics_expiry_seconds", &O::job_metrics_expiry_seconds,
                   1, 30 * 86400.0,
                   "A job's own metrics go when it neither planned nor "
                   "reported for this long."),
       }},
  };
  std::vector<Option> registry;
  for (const auto& [section, options] : sections) {
    for (const Option& option : options) {
      registry.push_back(option);
      registry.back().section = section;
    }
  }
  return registry;
}

}  // namespace

const std::vector<Option>& OptionRegistry() {
  // Never destroyed, so that it may be read at any time.
  static const auto* const registry = new std::vector<Option>(MakeRegistry());
  return *registry;
}

const Option* FindOption(const std::string& name) {
  for (const Option& option : OptionRegistry()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

}  // namespace skrull
