// One client of the daemon that the fault test kills.
#ifndef SKRULL_TESTS_FAULT_FAULT_CLIENT_H_
#define SKRULL_TESTS_FAULT_FAULT_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>

#include "grpcpp/grpcpp.h"
#include "skrull/tests/fault/history.h"
#include "skrull/v1/planner_service.grpc.pb.h"

namespace skrull::testing {

// Calls the daemon, one random call after the other, and tells the history. The
// client with index i creates and ends the lives of job i alone, and plans,
// fetches and reports for all jobs. Not thread-safe.
class FaultClient {
 public:
  // `history` and `answers` must outlive the client.
  FaultClient(int index, uint64_t seed, const std::string& address,
              History* history, std::atomic<int64_t>* answers);

  // Until it is asked to stop. Counts each answer in `answers`.
  void Run(const std::stop_token& stop);

  // Asks for each plan again, waiting for the daemon to be there.
  void AskAgain(const std::vector<Request>& requests);

 private:
  // What an answer says; kLost: none arrived.
  enum class Answer { kOk, kLost, kNoJob, kConflict, kRefused };

  void SetUp(grpc::ClientContext* context);
  // Tells of any answer that no call may get.
  Answer Read(const grpc::Status& status, const std::string& what);

  void ChangeJob();
  void Create(const Life& life);
  void Plan(const Request& request);
  void PlanOther(Request request);
  void FetchShare(const Request& request);
  void ReportStep(const Request& request);
  void GetJob(const Life& life);
  void ListEpochs(const Life& life);

  const int index_;
  std::mt19937_64 engine_;
  History* const history_;
  std::atomic<int64_t>* const answers_;
  const std::unique_ptr<v1::PlannerService::Stub> stub_;
  bool wait_for_ready_ = false;
  // Of its own job: the life that stands, or is to be created or ended.
  Life life_;
  enum class Stage {
    kNone,
    kCreating,
    kStands,
    kDeleting
  } stage_ = Stage::kNone;
  std::optional<Life> replaced_;  // by life_, which is being created
  int64_t last_peak_ = 0;
};

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_FAULT_FAULT_CLIENT_H_
