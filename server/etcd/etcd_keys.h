// The layout of the etcd store: its keys, which all start with one prefix.
//
//   version                          of this layout
//   jobs/changed                     written with every change of a job: its
//                                    revision says how far a watch must be
//   jobs/record/NAME                 JobValue; written when a life begins, so
//                                    that its revision is the life's birth
//   jobs/epoch/NAME                  the calibration epoch in force
//   counts/jobs, counts/owner/OWNER  CountValue
//   trash/NAME/BIRTH                 a life that ended and may have data left
//   data/NAME/BIRTH/                 of one life:
//     epochs/EPOCH                   epochs that were in force before
//     order/planned/REVISION/STEP    OrderValue: steps with a plan, by the
//                                    revision before their last commit
//     order/reported/REVISION/STEP   the same of steps that have reports alone
//     steps/STEP/planned, reported   StepValue: which of both it is
//     steps/STEP/plan/ATTEMPT        PlanValue: exists = the plan is committed
//     steps/STEP/chunk/ATTEMPT/SHA/I part of a plan too large for one value
//     steps/STEP/report/ATTEMPT/RANK a report
//
// Everything under data/NAME/BIRTH/ is written by transactions that compare the
// revision of jobs/record/NAME with BIRTH. So nothing is added to a life that
// has ended, and what is left of one is out of reach for every reader.
//
// Numbers are written with leading zeros, so that keys sort as they do.
#ifndef SKRULL_SERVER_ETCD_ETCD_KEYS_H_
#define SKRULL_SERVER_ETCD_ETCD_KEYS_H_

#include <cstdint>
#include <string>

namespace skrull {

// The end of the range of keys that start with `prefix`. REQUIRES: `prefix`
// ends with a slash.
std::string PrefixEnd(const std::string& prefix);

// Keys of one life of a job. Immutable. REQUIRES: all numbers are at least 0.
class EtcdLifeKeys {
 public:
  enum class Order { kPlanned, kReported };

  // `root` ends with a slash: EtcdKeys::Life.
  explicit EtcdLifeKeys(const std::string& root) : root_(root) {}

  const std::string& root() const { return root_; }
  std::string Epochs() const { return root_ + "epochs/"; }
  std::string Epoch(int64_t epoch) const;
  std::string OrderRoot(Order order) const;
  std::string OrderEntry(Order order, int64_t revision, int64_t step) const;
  std::string Step(int64_t step) const;
  // The step's StepValue.
  std::string Place(Order order, int64_t step) const;
  std::string Plan(int64_t step, int32_t attempt) const;
  std::string Chunks(int64_t step, int32_t attempt,
                     const std::string& digest) const;
  std::string Chunk(int64_t step, int32_t attempt, const std::string& digest,
                    int32_t index) const;
  std::string Reports(int64_t step, int32_t attempt) const;
  std::string Report(int64_t step, int32_t attempt, int32_t rank) const;

 private:
  std::string root_;
};

// Immutable.
class EtcdKeys {
 public:
  // `prefix` starts and ends with a slash: EtcdLocation::prefix.
  explicit EtcdKeys(const std::string& prefix) : prefix_(prefix) {}

  std::string Version() const { return prefix_ + "version"; }
  // What is watched.
  std::string Jobs() const { return prefix_ + "jobs/"; }
  std::string Changed() const { return Jobs() + "changed"; }
  std::string Records() const { return Jobs() + "record/"; }
  std::string Record(const std::string& job) const { return Records() + job; }
  std::string Epochs() const { return Jobs() + "epoch/"; }
  std::string Epoch(const std::string& job) const { return Epochs() + job; }
  std::string JobCount() const { return prefix_ + "counts/jobs"; }
  std::string OwnerCount(const std::string& owner) const {
    return prefix_ + "counts/owner/" + owner;
  }
  std::string TrashRoot() const { return prefix_ + "trash/"; }
  std::string Trash(const std::string& job, int64_t birth) const;
  // Of the life of a key of TrashRoot().
  std::string TrashedRoot(const std::string& trash_key) const;
  EtcdLifeKeys Life(const std::string& job, int64_t birth) const;

 private:
  std::string prefix_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_ETCD_ETCD_KEYS_H_
