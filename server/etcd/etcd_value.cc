#include "skrull/server/etcd/etcd_value.h"

#include <algorithm>
#include <utility>

#include "skrull/server/convert.h"

namespace skrull {

absl::StatusOr<JobRecord> JobRecordOf(const EtcdClient& client,
                                      const std::string& name,
                                      const etcdserverpb::KeyValue& record,
                                      const etcdserverpb::KeyValue& epoch) {
  absl::StatusOr<skrull::etcd::JobValue> value =
      ParseValue<skrull::etcd::JobValue>(client, record);
  if (!value.ok()) return value.status();
  absl::StatusOr<v1::Calibration> calibration =
      ParseValue<v1::Calibration>(client, epoch);
  if (!calibration.ok()) return calibration.status();
  JobRecord job;
  job.name = name;
  if (!job.spec.ParseFromString(value->spec())) {
    return client.Failed(
        absl::StrCat("the spec of job \"", name, "\" does not parse"));
  }
  job.generation = value->generation();
  job.owner = value->owner();
  job.calibration = *std::move(calibration);
  job.create_time_micros = value->create_time_micros();
  job.birth = record.mod_revision();
  job.version = std::max(record.mod_revision(), epoch.mod_revision());
  return job;
}

std::string EncodeJob(const JobRecord& record) {
  skrull::etcd::JobValue value;
  value.set_spec(CanonicalBytes(record.spec));
  value.set_generation(record.generation);
  value.set_owner(record.owner);
  value.set_create_time_micros(record.create_time_micros);
  return CanonicalBytes(value);
}

}  // namespace skrull
