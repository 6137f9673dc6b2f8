#include "skrull/cuda/attention/cudnn/plan_cache.h"

namespace skrull::exec::cudnn {

PlanCache::PlanCache(CudnnApi* api, const std::string& directory,
                     Events* events)
    : api_(api),
      files_(directory.empty() ? std::nullopt
                               : std::optional<PlanFiles>(directory)),
      events_(events) {}

Result<Graph*> PlanCache::Get(const DeviceInfo& device, const GraphKey& key) {
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& place = entries_[{device.ordinal, key}];
    if (place == nullptr) place = std::make_unique<Entry>();
    entry = place.get();
  }
  const std::lock_guard lock(entry->building);
  if (!entry->known) {
    Result<std::unique_ptr<Graph>> made = Make(device, key);
    entry->status = made.status();
    entry->known =
        made.ok() || made.status().code() == StatusCode::kPlanBuildFailed;
    if (made.ok()) entry->graph = *std::move(made);
  }
  if (entry->graph == nullptr) return entry->status;
  return entry->graph.get();
}

Result<std::unique_ptr<Graph>> PlanCache::Make(const DeviceInfo& device,
                                               const GraphKey& key) {
  const std::string name = device.fingerprint + "\n" + ToText(key);
  if (files_.has_value()) {
    if (const std::optional<std::string> bytes = files_->Read(name)) {
      Result<std::unique_ptr<Graph>> loaded = api_->Load(*bytes);
      if (loaded.ok()) {
        events_->Loaded();
        return loaded;
      }
      events_->LogOnce("load", "builds anew what is in " +
                                   files_->PathOf(name) + ": " +
                                   loaded.status().ToString());
    }
  }
  Result<std::unique_ptr<Graph>> built = api_->Build(key);
  if (!built.ok()) return built;
  events_->Built();
  if (!files_.has_value()) return built;
  const Result<std::string> bytes = (*built)->Save();
  const Status saved =
      bytes.ok() ? files_->Write(name, *bytes) : bytes.status();
  if (!saved.ok()) {
    events_->LogOnce("save", "keeps no plan on disk: " + saved.ToString());
  }
  return built;
}

}  // namespace skrull::exec::cudnn
