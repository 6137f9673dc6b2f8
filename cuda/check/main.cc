// skrull-device-check: verifies a device and an attention backend against
// float64, and measures them. docs/device-check.md explains the figures.
//
// Exit 0: all results within their limits, whatever targets are missed; 1: not,
// or something failed; 2: usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/check/budget.h"
#include "skrull/cuda/check/cuda_access.h"
#include "skrull/cuda/check/device_check.h"
#include "skrull/cuda/check/library_versions.h"
#include "skrull/cuda/check/nccl_check.h"
#include "skrull/cuda/check/report.h"
#include "skrull/cuda/check/sanitizer.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/profile/profile.h"
#include "skrull/cuda/profile/report.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;
using nlohmann::ordered_json;

// Those of RunDeviceCheck, and what is done here.
const std::vector<std::string> kSections = {
    "correctness",   "attention", "zigzag", "rows",     "overlap",
    "virtual_ranks", "fit",       "nccl",   "sanitizer"};

struct Settings {
  std::string program;  // this one, to run it under a sanitizer
  std::string device = "cpu";
  std::vector<std::string> backends = {"cpu"};
  std::vector<std::string> sections = kSections;
  std::string plugin_directory;
  int32_t ordinal = 0;
  bool tiny = false;
  double budget_seconds = 420;
  std::string json_file;

  bool Wants(const std::string& section) const {
    return std::ranges::find(sections, section) != sections.end();
  }
};

// The cost model's coefficients of the backend, for Qwen2.5's 0.5B or a small
// model. A fit that is refused is a finding, not a failure.
void AddFit(const Settings& settings, const std::string& name,
            exec::MemoryKind memory, double seconds_left, CheckReport* report) {
  profile::JobOptions job = {.model = {.hidden_size = 896,
                                       .layer_count = 24,
                                       .attention_head_count = 14,
                                       .kv_head_count = 2,
                                       .head_dim = 64,
                                       .intermediate_size = 4864,
                                       .vocab_size = 151936}};
  profile::DeviceProfileOptions options;
  options.device = settings.device;
  options.backend = name;
  options.plugin_directory = settings.plugin_directory;
  options.ordinal = settings.ordinal;
  if (memory == exec::MemoryKind::kHost) job.dtype = exec::DType::kFloat32;
  if (settings.tiny) {
    const CheckSizes sizes = CheckSizes::Tiny(memory);
    const Heads& heads = sizes.heads[0];
    job.model = {.hidden_size = heads.q * heads.dim,
                 .layer_count = 2,
                 .attention_head_count = heads.q,
                 .kv_head_count = heads.kv,
                 .head_dim = heads.dim,
                 .intermediate_size = 2 * heads.q * heads.dim,
                 .vocab_size = 128};
    options.least_tokens = 16;
    options.most_tokens = 64;
    options.degrees = {2};
    options.measure = sizes.measure;
  }
  SectionWriter section("fit", report);
  if (seconds_left <= 0) {
    return section.Skip(name, "it would not end within --budget-seconds");
  }
  const Result<profile::Profile> made = profile::ProfileDevice(job, options);
  if (!made.ok()) return section.Fail(name, made.status().ToString());
  std::string text = "residuals of each coefficient\n";
  for (const profile::LinearFit& fit : made->fits) {
    text += profile::FitText(fit);
  }
  section.Add(name,
              {{"verdict", made->verdict().ToString()},
               {"fragment", profile::FragmentText(job, *made)}},
              text);
}

// One backend, for so many seconds. A backend that is not there is a failure of
// the check.
CheckReport CheckBackend(const Settings& settings, const std::string& name,
                         exec::Device* device, double seconds) {
  std::cout << "\n== backend " << name << '\n';
  CheckReport report;
  report.live = &std::cout;
  const auto backend = exec::CreateAttentionBackend(
      name, {.directory = settings.plugin_directory});
  Status status = backend.status();
  if (backend.ok() && (*backend)->memory() != device->memory()) {
    status = exec::InvalidArgument("works in other memory than device " +
                                   std::string(device->name()));
  }
  if (!status.ok()) {
    report.failures.push_back(status.ToString());
    std::cout << "FAILED: " << status.ToString() << '\n';
    report.json["failure"] = status.ToString();
    return report;
  }
  Budget budget(profile::WallClock(), seconds);
  RunDeviceCheck(device, backend->get(),
                 settings.tiny ? CheckSizes::Tiny(device->memory())
                               : CheckSizes::Full(device->memory()),
                 {settings.sections.begin(), settings.sections.end()}, &budget,
                 &report);
  if (settings.Wants("fit")) {
    AddFit(settings, name, device->memory(), budget.left(), &report);
  }
  return report;
}

// This program's tiny cases under compute-sanitizer, for so many seconds.
void Sanitize(const Settings& settings, exec::MemoryKind memory, double seconds,
              CheckReport* report) {
  SectionWriter section("sanitizer", report);
  if (memory != exec::MemoryKind::kCuda) {
    return section.Skip("all tools",
                        "device " + settings.device + " has no CUDA memory");
  }
  SanitizerOptions options = {
      .program = {settings.program, "--tiny", "--sections=correctness,rows",
                  "--device=" + settings.device,
                  "--ordinal=" + std::to_string(settings.ordinal)},
      .seconds = seconds};
  for (const std::string& backend : settings.backends) {
    options.program.push_back("--backend=" + backend);
  }
  if (!settings.plugin_directory.empty()) {
    options.program.push_back("--plugin-dir=" + settings.plugin_directory);
  }
  RunSanitizers(options, &section);
}

// Prints a part's targets and adds it to what is written.
class Results {
 public:
  Results(const Settings& settings, ordered_json first)
      : file_(settings.json_file), json_(std::move(first)) {}

  // With `backend` empty: of the device alone. Writes the file, so that what
  // was found is there whatever happens to the rest. Errors: INTERNAL.
  Status Add(const std::string& backend, const CheckReport& report) {
    std::cout << TargetText(report.targets) << std::flush;
    ordered_json part = report.json;
    part["targets"] = TargetJson(report.targets);
    if (backend.empty()) {
      json_["of_device"] = std::move(part);
    } else {
      json_["backends"][backend] = std::move(part);
    }
    for (const std::string& failure : report.failures) {
      failures_.push_back((backend.empty() ? "" : backend + ": ") + failure);
    }
    json_["failures"] = failures_;
    return Write();
  }

  Status verdict() const {
    if (failures_.empty()) return {};
    return {exec::StatusCode::kDeviceError, std::to_string(failures_.size()) +
                                                " failures; the first is " +
                                                failures_[0]};
  }

 private:
  Status Write() const {
    if (file_.empty()) return {};
    std::ofstream file(file_);
    file << json_.dump(2) << '\n';
    file.close();
    if (file) return {};
    return {exec::StatusCode::kInternal, file_ + " cannot be written"};
  }

  const std::string file_;
  ordered_json json_;
  std::vector<std::string> failures_;
};

// What the figures are of. Prints it.
ordered_json Describe(const Settings& settings) {
  ordered_json json = {{"skrull", SKRULL_VERSION}, {"device", settings.device}};
  json.update(DescribeGpu(settings.ordinal));
  json.update(LibraryVersions());
  for (const auto& [key, value] : json.items()) {
    std::cout << key << ' '
              << (value.is_string() ? value.get<std::string>() : value.dump())
              << '\n';
  }
  return json;
}

// The parts share the budget equally; what one leaves goes to the next.
Status Run(const Settings& settings) {
  const Budget budget(profile::WallClock(), settings.budget_seconds);
  const Result<std::unique_ptr<exec::Device>> device = exec::CreateDevice(
      settings.device,
      {.directory = settings.plugin_directory, .ordinal = settings.ordinal});
  Results results(settings, Describe(settings));
  SKRULL_EXEC_RETURN_IF_ERROR(device.status());
  const bool has_gpu = (*device)->memory() == exec::MemoryKind::kCuda;
  size_t parts = settings.backends.size() +
                 (has_gpu && settings.Wants("sanitizer") ? 1 : 0);
  for (const std::string& name : settings.backends) {
    const double seconds = budget.left() / static_cast<double>(parts--);
    SKRULL_EXEC_RETURN_IF_ERROR(results.Add(
        name, CheckBackend(settings, name, device->get(), seconds)));
  }
  if (!settings.Wants("nccl") && !settings.Wants("sanitizer")) {
    return results.verdict();
  }
  std::cout << "\n== device\n";
  CheckReport report;
  report.live = &std::cout;
  if (settings.Wants("nccl")) {
    CheckInstalledNccl(device->get(), settings.plugin_directory,
                       settings.ordinal, &report);
  }
  if (settings.Wants("sanitizer")) {
    Sanitize(settings, (*device)->memory(), budget.left(), &report);
  }
  SKRULL_EXEC_RETURN_IF_ERROR(results.Add("", report));
  return results.verdict();
}

int Main(int argc, char** argv) {
  Settings settings;
  settings.program = std::filesystem::read_symlink("/proc/self/exe");
  CLI::App app("Verifies and measures a device and its attention backends.",
               "skrull-device-check");
  app.add_option("--device", settings.device, "Device, e.g. cpu or cuda")
      ->capture_default_str();
  app.add_option("--backend", settings.backends,
                 "Attention backends, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--plugin-dir", settings.plugin_directory,
                 "Where libskrull_*.so are. Default: beside this program, "
                 "else where the dynamic linker looks");
  app.add_option("--ordinal", settings.ordinal, "Which of the devices")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  app.add_option("--sections", settings.sections,
                 "What to run, separated by commas. Default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(kSections));
  app.add_option("--budget-seconds", settings.budget_seconds,
                 "After how long what only measures is skipped")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--tiny", settings.tiny, "Small cases, for a CPU");
  app.add_option("--json", settings.json_file, "Also write a JSON file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const Status status = Run(settings);
  if (status.ok()) return 0;
  std::cerr << "skrull-device-check: " << status.ToString() << '\n';
  return 1;
}

}  // namespace
}  // namespace skrull::check

int main(int argc, char** argv) { return skrull::check::Main(argc, argv); }
