// skrull-device-check: verifies a device and an attention backend against
// float64, and measures them. docs/device-check.md explains the figures.
//
// Exit 0: all results within their limits; 1: not, or something failed; 2:
// usage.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "skrull/cuda/backend_registry.h"
#include "skrull/cuda/check/cuda_access.h"
#include "skrull/cuda/check/device_check.h"
#include "skrull/cuda/device_registry.h"
#include "skrull/cuda/profile/profile.h"
#include "skrull/cuda/profile/report.h"

namespace skrull::check {
namespace {

using exec::Result;
using exec::Status;

struct Settings {
  std::string device = "cpu";
  std::vector<std::string> backends = {"cpu"};
  std::string plugin_directory;
  int32_t ordinal = 0;
  bool tiny = false;
  std::string json_file;
};

// The cost model's coefficients of the backend, for Qwen2.5's 0.5B or a small
// model. A fit that is refused is a finding, not a failure.
void AddFit(const Settings& settings, const std::string& name,
            exec::MemoryKind memory, CheckReport* report) {
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
    job.model = {64, 2, 4, 2, 16, 128, 128};
    options.least_tokens = 16;
    options.most_tokens = 64;
    options.degrees = {2};
    options.measure = CheckSizes::Tiny().measure;
  }
  const Result<profile::Profile> made = profile::ProfileDevice(job, options);
  report->text += "\nfit\n";
  if (!made.ok()) {
    report->failures.push_back("fit: " + made.status().ToString());
    report->text += "  FAILED: " + made.status().ToString() + "\n";
    report->json["fit"] = {{"failure", made.status().ToString()}};
    return;
  }
  for (const profile::LinearFit& fit : made->fits) {
    report->text += profile::FitText(fit);
  }
  report->json["fit"] = {{"verdict", made->verdict().ToString()},
                         {"fragment", profile::FragmentText(job, *made)}};
}

// One backend. A backend that is not there is a failure of the check.
CheckReport CheckBackend(const Settings& settings, const std::string& name,
                         exec::Device* device) {
  CheckReport report;
  const auto backend = exec::CreateAttentionBackend(
      name, {.directory = settings.plugin_directory});
  Status status = backend.status();
  if (backend.ok() && (*backend)->memory() != device->memory()) {
    status = exec::InvalidArgument("works in other memory than device " +
                                   std::string(device->name()));
  }
  if (!status.ok()) {
    report.failures.push_back(status.ToString());
    report.text = "FAILED: " + status.ToString() + "\n";
    report.json["failure"] = status.ToString();
    return report;
  }
  RunDeviceCheck(
      device, backend->get(),
      settings.tiny ? CheckSizes::Tiny() : CheckSizes::Full(device->memory()),
      &report);
  AddFit(settings, name, device->memory(), &report);
  return report;
}

Status Run(const Settings& settings) {
  const Result<std::unique_ptr<exec::Device>> device = exec::CreateDevice(
      settings.device,
      {.directory = settings.plugin_directory, .ordinal = settings.ordinal});
  const std::string gpu = DescribeGpu(settings.ordinal);
  std::cout << "skrull " << SKRULL_VERSION << ", device " << settings.device
            << "; " << gpu << '\n';
  SKRULL_EXEC_RETURN_IF_ERROR(device.status());
  nlohmann::ordered_json json = {{"skrull", SKRULL_VERSION},
                                 {"device", (*device)->name()},
                                 {"gpu", gpu},
                                 {"backends", nlohmann::json::object()}};
  std::vector<std::string> failures;
  for (const std::string& name : settings.backends) {
    CheckReport report = CheckBackend(settings, name, device->get());
    std::cout << "\n== backend " << name << "\n" << report.text;
    json["backends"][name] = std::move(report.json);
    for (const std::string& failure : report.failures) {
      failures.push_back(name + ": " + failure);
    }
  }
  json["failures"] = failures;
  if (!settings.json_file.empty()) {
    std::ofstream file(settings.json_file);
    file << json.dump(2) << '\n';
    file.close();
    if (!file) {
      return {exec::StatusCode::kInternal,
              settings.json_file + " cannot be written"};
    }
  }
  if (failures.empty()) return {};
  return {exec::StatusCode::kDeviceError, std::to_string(failures.size()) +
                                              " failures; the first is " +
                                              failures[0]};
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Verifies and measures a device and its attention backends.",
               "skrull-device-check");
  app.add_option("--device", settings.device, "Device, e.g. cpu or cuda")
      ->capture_default_str();
  app.add_option("--backend", settings.backends,
                 "Attention backends, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--plugin-dir", settings.plugin_directory,
                 "Where libskrull_*.so are. Default: where the dynamic linker "
                 "looks");
  app.add_option("--ordinal", settings.ordinal, "Which of the devices")
      ->check(CLI::Range(0, 1023))
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
