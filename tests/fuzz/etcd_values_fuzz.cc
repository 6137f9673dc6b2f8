// Values that a damaged etcd, or another program, could hold under a job's two
// keys: the first byte is the length of the record's value in 16ths of the
// input, the epoch's value is the rest. They are read as a job whose spec and
// numbers the converters judge, or refused as a failed store.
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/planner/error.h"
#include "skrull/server/calibration/apply.h"
#include "skrull/server/convert.h"
#include "skrull/server/etcd/etcd_client.h"
#include "skrull/server/etcd/etcd_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Only named in errors: nothing connects.
  static const skrull::EtcdClient* const client = new skrull::EtcdClient(
      {.endpoints = {"127.0.0.1:1"},
       .credentials = grpc::InsecureChannelCredentials()});
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = bytes.size() * (data[0] % 17) / 16;
  etcdserverpb::KeyValue record;
  record.set_key("record");
  record.set_value(bytes.substr(0, cut));
  record.set_mod_revision(7);
  etcdserverpb::KeyValue epoch;
  epoch.set_key("epoch");
  epoch.set_value(bytes.substr(cut));
  epoch.set_mod_revision(9);
  const absl::StatusOr<skrull::JobRecord> job =
      skrull::JobRecordOf(*client, "run", record, epoch);
  if (!job.ok()) {
    const auto detail = skrull::GetErrorDetail(job.status());
    if (!detail || detail->reason != skrull::ErrorReason::kStoreFailed) {
      std::abort();
    }
    return 0;
  }
  if (job->name != "run" || job->birth != 7 || job->version != 9) std::abort();
  (void)skrull::JobFromProto(
      skrull::ApplyCalibration(job->spec, job->calibration));
  // What is written of it is read as the same.
  record.set_value(skrull::EncodeJob(*job));
  const absl::StatusOr<skrull::JobRecord> again =
      skrull::JobRecordOf(*client, "run", record, epoch);
  if (!again.ok() || skrull::EncodeJob(*again) != record.value()) std::abort();
  return 0;
}
