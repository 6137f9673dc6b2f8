#include "skrull/cli/debug_bundle.h"

#include <openssl/evp.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "skrull/cli/http_get.h"

namespace skrull::cli {
namespace {

using nlohmann::ordered_json;

// More would make a bundle nobody reads; the manifest says what was left out.
constexpr size_t kMaxJobs = 100;
constexpr size_t kMaxPlans = 16;
constexpr int32_t kMaxStatusPlans = 1000;
constexpr size_t kMaxMetricsBytes = 64 << 20;

// Variables that say how the client behaves and cannot hold a secret.
constexpr std::array<std::string_view, 6> kShownVariables = {
    "GRPC_DNS_RESOLVER", "GRPC_TRACE", "GRPC_VERBOSITY", "LANG", "LC_ALL",
    "SKRULL_SERVER"};

std::string Utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string Sha256(const std::string& bytes) {
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(),
                 reinterpret_cast<unsigned char*>(hash.data()), &size,
                 EVP_sha256(), nullptr) != 1) {
    return "";
  }
  hash.resize(size);
  return absl::BytesToHexString(hash);
}

std::string Text(const ordered_json& json) {
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

// True if the name can be that of a file, on any system.
bool IsFileName(const std::string& name) {
  constexpr size_t kMaxLength = 128;
  return !name.empty() && name.size() <= kMaxLength && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '.' || c == '_' || c == '-';
         });
}

// "variable": its value, or only that it is set.
ordered_json EnvironmentJson() {
  ordered_json json = ordered_json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    const bool shown = std::find(kShownVariables.begin(), kShownVariables.end(),
                                 name) != kShownVariables.end();
    if (!shown && !name.starts_with("SKRULL_") && !name.starts_with("GRPC_") &&
        absl::AsciiStrToLower(name).find("_proxy") == std::string::npos) {
      continue;
    }
    json[name] = shown && variable.size() > name.size()
                     ? variable.substr(name.size() + 1)
                     : "(set; value left out)";
  }
  return json;
}

std::string ClientText(const BundleRequest& request) {
  utsname system = {};
  ::uname(&system);
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return Text({{"skrullctl", SKRULL_VERSION},
               {"time", Utc(request.now)},
               {"system", system.sysname},
               {"release", system.release},
               {"machine", system.machine},
               {"hardware_threads", std::thread::hardware_concurrency()},
               {"open_file_limit", files.rlim_cur},
               {"environment", EnvironmentJson()}});
}

void ReplaceLabels(ordered_json& json) {
  for (auto& [key, value] : json.items()) {
    if (key == "labels" && value.is_object()) {
      for (auto& [label, text] : value.items()) text = "(left out)";
    } else if (value.is_structured()) {
      ReplaceLabels(value);
    }
  }
}

class Gatherer {
 public:
  Gatherer(PlannerClient* client, const BundleRequest& request)
      : client_(client), request_(request) {}

  Bundle Gather() {
    Add("client.json", ClientText(request_));
    AddInspection("status.json", {.subject = Inspection::Subject::kStatus});
    const std::vector<std::string> jobs = JobNames();
    for (const std::string& job : jobs) {
      AddInspection(absl::StrCat("jobs/", job, ".json"),
                    {.subject = Inspection::Subject::kJob, .job = job});
      AddInspection(
          absl::StrCat("calibrations/", job, ".json"),
          {.subject = Inspection::Subject::kCalibrations, .job = job});
    }
    AddPlans();
    AddMetrics();
    bundle_.files.insert(bundle_.files.begin(), {"manifest.json", Manifest()});
    return std::move(bundle_);
  }

 private:
  void Add(const std::string& name, std::string content) {
    bundle_.files.push_back({name, std::move(content)});
  }

  void Fail(const std::string& what, const absl::Status& status) {
    bundle_.errors.push_back({what, status});
  }

  // False if the daemon could not be reached before; notes that `what` is
  // missing for it.
  bool MayAsk(const std::string& what) {
    if (reachable_) return true;
    Fail(what, absl::UnavailableError("not asked: the daemon was unreachable"));
    return false;
  }

  void NoteReachable(const absl::Status& status) {
    if (absl::IsUnavailable(status)) reachable_ = false;
  }

  void AddInspection(const std::string& name, const Inspection& inspection,
                     const CallOptions& call = {}) {
    if (!MayAsk(name)) return;
    absl::StatusOr<std::string> json = client_->Inspect(inspection, call);
    NoteReachable(json.status());
    if (json.ok()) json = WithoutLabels(*json);
    if (!json.ok()) return Fail(name, json.status());
    Add(name, *std::move(json));
  }

  // Those whose details go into the bundle.
  std::vector<std::string> JobNames() {
    if (!request_.job.empty()) return {request_.job};
    if (!MayAsk("jobs.json")) return {};
    const absl::StatusOr<std::vector<JobInfo>> jobs = client_->ListJobs();
    NoteReachable(jobs.status());
    if (!jobs.ok()) {
      Fail("jobs.json", jobs.status());
      return {};
    }
    std::vector<std::string> names;
    ordered_json json = ordered_json::array();
    for (const JobInfo& job : *jobs) {
      json.push_back({{"name", job.name},
                      {"generation", job.generation},
                      {"calibration_epoch", job.calibration_epoch},
                      {"create_time", Utc(job.create_time)}});
      if (!IsFileName(job.name)) {
        Fail("jobs/", absl::InvalidArgumentError(absl::StrCat(
                          "no name of a job: ", absl::CHexEscape(job.name))));
      } else if (names.size() < kMaxJobs) {
        names.push_back(job.name);
      }
    }
    Add("jobs.json", Text(json));
    if (names.size() < jobs->size()) {
      Fail("jobs/", absl::ResourceExhaustedError(absl::StrCat(
                        "details of ", names.size(), " of ", jobs->size(),
                        " jobs; --job names another")));
    }
    return names;
  }

  // Rank 0's share of the plans that the daemon made last.
  void AddPlans() {
    if (!MayAsk("plans/")) return;
    const absl::StatusOr<DaemonStatus> status =
        client_->GetStatus(1, kMaxStatusPlans);
    NoteReachable(status.status());
    if (!status.ok()) return Fail("plans/", status.status());
    std::set<std::string> added;
    for (const DaemonPlan& plan : status->plans) {
      if (added.size() >= kMaxPlans) return;
      if (!IsFileName(plan.job)) continue;  // of a spec alone
      if (!request_.job.empty() && plan.job != request_.job) continue;
      const std::string name =
          absl::StrCat("plans/", plan.job, "-step", plan.step, "-attempt",
                       plan.attempt, "-rank0.json");
      if (!added.insert(name).second) continue;
      // One that was made and not committed is waited for in vain.
      AddInspection(name,
                    {.subject = Inspection::Subject::kRankPlan,
                     .job = plan.job,
                     .step = plan.step,
                     .attempt = plan.attempt},
                    {.timeout = std::min(request_.timeout,
                                         std::chrono::milliseconds(2000))});
    }
  }

  void AddMetrics() {
    if (request_.metrics_url.empty()) return;
    absl::StatusOr<std::string> page =
        HttpGet(request_.metrics_url, request_.timeout, kMaxMetricsBytes);
    if (!page.ok()) return Fail("metrics.txt", page.status());
    Add("metrics.txt", *std::move(page));
  }

  std::string Manifest() const {
    ordered_json files = ordered_json::array();
    for (const ArchivedFile& file : bundle_.files) {
      files.push_back({{"name", file.name},
                       {"bytes", file.content.size()},
                       {"sha256", Sha256(file.content)}});
    }
    ordered_json errors = ordered_json::array();
    for (const BundleError& error : bundle_.errors) {
      errors.push_back({{"what", error.what},
                        {"code", absl::StatusCodeToString(error.status.code())},
                        {"message", std::string(error.status.message())}});
    }
    return Text({{"skrullctl", SKRULL_VERSION},
                 {"time", Utc(request_.now)},
                 {"server", request_.server},
                 {"job", request_.job},
                 {"files", files},
                 {"errors", errors}});
  }

  PlannerClient* const client_;
  const BundleRequest& request_;
  Bundle bundle_;
  bool reachable_ = true;
};

}  // namespace

absl::StatusOr<std::string> WithoutLabels(const std::string& json) {
  ordered_json parsed =
      ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InternalError("no JSON");
  ReplaceLabels(parsed);
  return Text(parsed);
}

Bundle GatherBundle(PlannerClient& client, const BundleRequest& request) {
  return Gatherer(&client, request).Gather();
}

}  // namespace skrull::cli
