#include "skrull/server/etcd/etcd_keys.h"

#include "absl/strings/str_cat.h"

namespace skrull {
namespace {

std::string Wide(int64_t number) {
  return absl::StrCat(absl::Dec(number, absl::kZeroPad19));
}

std::string Narrow(int32_t number) {
  return absl::StrCat(absl::Dec(number, absl::kZeroPad10));
}

const char* Name(EtcdLifeKeys::Order order) {
  return order == EtcdLifeKeys::Order::kPlanned ? "planned" : "reported";
}

}  // namespace

std::string PrefixEnd(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();
  return end;
}

std::string EtcdLifeKeys::Epoch(int64_t epoch) const {
  return Epochs() + Wide(epoch);
}

std::string EtcdLifeKeys::OrderRoot(Order order) const {
  return absl::StrCat(root_, "order/", Name(order), "/");
}

std::string EtcdLifeKeys::OrderEntry(Order order, int64_t revision,
                                     int64_t step) const {
  return absl::StrCat(OrderRoot(order), Wide(revision), "/", Wide(step));
}

std::string EtcdLifeKeys::Step(int64_t step) const {
  return absl::StrCat(root_, "steps/", Wide(step), "/");
}

std::string EtcdLifeKeys::Place(Order order, int64_t step) const {
  return Step(step) + Name(order);
}

std::string EtcdLifeKeys::Plan(int64_t step, int32_t attempt) const {
  return absl::StrCat(Step(step), "plan/", Narrow(attempt));
}

std::string EtcdLifeKeys::Chunks(int64_t step, int32_t attempt,
                                 const std::string& digest) const {
  return absl::StrCat(Step(step), "chunk/", Narrow(attempt), "/", digest, "/");
}

std::string EtcdLifeKeys::Chunk(int64_t step, int32_t attempt,
                                const std::string& digest,
                                int32_t index) const {
  return Chunks(step, attempt, digest) + Narrow(index);
}

std::string EtcdLifeKeys::Reports(int64_t step, int32_t attempt) const {
  return absl::StrCat(Step(step), "report/", Narrow(attempt), "/");
}

std::string EtcdLifeKeys::Report(int64_t step, int32_t attempt,
                                 int32_t rank) const {
  return Reports(step, attempt) + Narrow(rank);
}

std::string EtcdKeys::Trash(const std::string& job, int64_t birth) const {
  return absl::StrCat(TrashRoot(), job, "/", Wide(birth));
}

std::string EtcdKeys::TrashedRoot(const std::string& trash_key) const {
  return absl::StrCat(prefix_, "data/", trash_key.substr(TrashRoot().size()),
                      "/");
}

EtcdLifeKeys EtcdKeys::Life(const std::string& job, int64_t birth) const {
  return EtcdLifeKeys(
      absl::StrCat(prefix_, "data/", job, "/", Wide(birth), "/"));
}

}  // namespace skrull
