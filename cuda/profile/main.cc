// skrull-profile: measures a machine, or reads what a trainer reported, and
// writes the cost and memory numbers of a job file. docs/profile.md tells how
// to use it and what its formulas are.
//
// The fragment goes to the standard output; tables and reasons to the standard
// error output.
//
// Exit 0: fitted; 1: a fit was refused, nothing is written, or something
// failed; 2: usage.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "skrull/cuda/profile/profile.h"
#include "skrull/cuda/profile/report.h"

namespace skrull::profile {
namespace {

using exec::Result;
using exec::Status;

constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostBytes = int64_t{1} << 50;

struct Settings {
  JobOptions job;
  DeviceProfileOptions device;
  std::string dtype;
  std::string clock = "wall";
  std::string link = "constants";
  std::string log_file;
};

void AddModelOptions(CLI::App* app, ModelShape* model) {
  const auto add = [&](const char* name, int64_t* value, const char* help) {
    app->add_option(name, *value, help)
        ->required()
        ->check(CLI::Range(int64_t{1}, kMostSize))
        ->group("Model, by the names of skrull.v1.ModelSpec");
  };
  add("--hidden-size", &model->hidden_size, "Width of the residual stream");
  add("--layer-count", &model->layer_count, "Layers");
  add("--attention-head-count", &model->attention_head_count, "Query heads");
  add("--kv-head-count", &model->kv_head_count, "Key/value heads");
  add("--head-dim", &model->head_dim, "Width of a head");
  add("--intermediate-size", &model->intermediate_size,
      "Width of the gated MLP");
  add("--vocab-size", &model->vocab_size, "Entries of the output layer");
}

void AddJobOptions(CLI::App* app, Settings* settings) {
  const char* group = "Job";
  app->add_option(
         "--dtype", settings->dtype,
         "Type of activations, keys and values. Default: float32 where "
         "the cpu is measured, else bfloat16")
      ->check(CLI::IsMember({"float16", "bfloat16", "float32", "float64"}))
      ->group(group);
  app->add_flag("--recompute", settings->job.recomputes,
                "Layers are recomputed in the backward pass")
      ->group(group);
  const auto error = [&](const char* name, double* value, const char* help) {
    app->add_option(name, *value, help)
        ->check(CLI::Range(0.0, 10.0))
        ->capture_default_str()
        ->group(group);
  };
  error("--max-error", &settings->job.max_mean_error,
        "Mean relative error above which a fit is refused");
  error("--max-link-error", &settings->job.max_mean_link_error,
        "The same of collectives and exchange");
  MemoryNumbers& memory = settings->job.memory;
  const auto bytes = [&](const char* name, auto* value, const char* help) {
    app->add_option(name, *value, help)
        ->check(CLI::Range(int64_t{1}, kMostBytes))
        ->group(group);
  };
  bytes("--bucket-size-tokens", &memory.bucket_size_tokens,
        "Tokens a rank holds in one micro-batch");
  bytes("--device-bytes", &memory.device_bytes, "Memory of one device");
  bytes("--static-bytes", &memory.static_bytes,
        "Bytes taken whatever the batch: weights, gradients, optimizer");
  app->add_option("--bytes-per-token", memory.bytes_per_token,
                  "Activation bytes of a token. Default: counted")
      ->check(CLI::Range(1.0, 1e15))
      ->group(group);
  app->add_option("--reserve-fraction", memory.reserve_fraction,
                  "Share of device-bytes kept free")
      ->check(CLI::Range(0.0, 0.99))
      ->group(group);
}

void AddDeviceOptions(CLI::App* app, Settings* settings) {
  DeviceProfileOptions& device = settings->device;
  const char* group = "Measuring";
  const auto add = [&](const char* name, auto* value, int64_t least,
                       int64_t most, const char* help) {
    app->add_option(name, *value, help)
        ->check(CLI::Range(least, most))
        ->capture_default_str()
        ->group(group);
  };
  const auto name = [&](const char* flag, std::string* value,
                        const char* help) {
    return app->add_option(flag, *value, help)
        ->capture_default_str()
        ->group(group);
  };
  name("--device", &device.device, "Device, e.g. cpu or cuda");
  name("--backend", &device.backend, "Attention, e.g. cpu, cuda or cudnn");
  name("--plugin-dir", &device.plugin_directory,
       "Where libskrull_*.so are. Default: where the dynamic linker looks");
  add("--ordinal", &device.ordinal, 0, 1023, "Which of the machine's devices");
  add("--cpu-threads", &device.cpu_threads, 1, 1024,
      "Threads of the cpu backend; matrix products there have one");
  app->add_flag("--deterministic", device.deterministic,
                "Only attention that gives equal bits for equal inputs")
      ->group(group);
  name("--communicator", &device.communicator, "Ranks to measure a link with")
      ->check(CLI::IsMember({"none", "in_process", "host", "nccl"}));
  add("--ranks", &device.ranks, 2, 64, "How many of them");
  name("--link", &settings->link, "Fit two constants, or write the points")
      ->check(CLI::IsMember({"constants", "table"}));
  add("--min-tokens", &device.least_tokens, 1, 1 << 20, "Shortest length");
  add("--max-tokens", &device.most_tokens, 1, 1 << 20,
      "Longest length, and most rows of a rank");
  app->add_option("--degrees", device.degrees, "Ranks that share a sequence")
      ->check(CLI::Range(2, 1024))
      ->delimiter(',')
      ->capture_default_str()
      ->group(group);
  add("--max-link-bytes", &device.most_link_bytes, 16384, int64_t{1} << 32,
      "Largest collective");
  name("--clock", &settings->clock,
       "Wall time, or CPU seconds where ranks share cores")
      ->check(CLI::IsMember({"wall", "cpu"}));
  add("--samples", &device.measure.samples, 1, 10000,
      "Samples, the median of which counts");
  add("--warm-ups", &device.measure.warm_ups, 0, 10000, "Calls before them");
  app->add_option("--sample-seconds", device.measure.least_sample_seconds,
                  "How long a sample repeats short calls")
      ->check(CLI::Range(1e-6, 60.0))
      ->capture_default_str()
      ->group(group);
}

// What the options mean together.
void Complete(Settings* settings) {
  if (settings->dtype.empty()) {
    const bool on_cpu =
        settings->log_file.empty() && settings->device.device == "cpu";
    settings->dtype = on_cpu ? "float32" : "bfloat16";
  }
  for (const exec::DType dtype :
       {exec::DType::kFloat16, exec::DType::kBFloat16, exec::DType::kFloat32,
        exec::DType::kFloat64}) {
    if (exec::DTypeName(dtype) == settings->dtype) settings->job.dtype = dtype;
  }
  settings->device.cpu_clock = settings->clock == "cpu";
  settings->device.link_table = settings->link == "table";
}

Result<std::vector<LogRecord>> ReadLogFile(const std::string& name) {
  if (name == "-") return ReadLog("standard input", &std::cin);
  std::ifstream file(name);
  if (!file) {
    return Status(exec::StatusCode::kNotFound, name + " cannot be read");
  }
  return ReadLog(name, &file);
}

Result<Profile> MakeProfile(const Settings& settings) {
  if (settings.log_file.empty()) {
    return ProfileDevice(settings.job, settings.device);
  }
  const Result<std::vector<LogRecord>> records = ReadLogFile(settings.log_file);
  SKRULL_EXEC_RETURN_IF_ERROR(records.status());
  return ProfileLog(settings.job, *records);
}

Status Run(const Settings& settings) {
  const Result<Profile> profile = MakeProfile(settings);
  SKRULL_EXEC_RETURN_IF_ERROR(profile.status());
  if (!profile->compute.empty()) {
    std::cerr << ComputeText(profile->compute) << '\n';
  }
  if (!profile->links.empty()) std::cerr << LinkText(profile->links) << '\n';
  for (const LinearFit& fit : profile->fits) std::cerr << FitText(fit) << '\n';
  SKRULL_EXEC_RETURN_IF_ERROR(profile->verdict());
  std::cout << FragmentText(settings.job, *profile) << std::flush;
  if (!std::cout) {
    return {exec::StatusCode::kInternal, "the fragment cannot be written"};
  }
  return {};
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app(
      "Measures what work costs on a device, or reads what a trainer reported, "
      "fits the planner's cost model to it, and writes the model, memory and "
      "cost parts of a job file.",
      "skrull-profile");
  AddModelOptions(&app, &settings.job.model);
  AddJobOptions(&app, &settings);
  AddDeviceOptions(&app, &settings);
  app.add_option("--from-log", settings.log_file,
                 "Fit the micro-batches that a trainer reported in this file "
                 "(docs/profile.md); - is the standard input");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  Complete(&settings);
  const Status status = Run(settings);
  if (status.ok()) return 0;
  std::cerr << "skrull-profile: " << status.ToString() << '\n';
  return 1;
}

}  // namespace
}  // namespace skrull::profile

int main(int argc, char** argv) { return skrull::profile::Main(argc, argv); }
