// NCCL through the C interface, over a fake of it in a shared object.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "skrull/cuda/c_api/skrull_exec.h"
#include "skrull/cuda/nccl/nccl_library.h"
#include "skrull/tests/cuda/c_api_meeting.h"
#include "skrull/tests/cuda/c_api_rank.h"
#include "skrull/tests/cuda/fake_nccl.h"

namespace skrull::exec::testing {
namespace {

const std::string kDirectory = SKRULL_TEST_PLUGIN_DIR;

// The fake behind the library's table: one for the whole process.
FakeNccl* Fake() {
  void* const library =
      dlopen((kDirectory + "/libskrull_comm_nccl.so").c_str(), RTLD_NOW);
  REQUIRE(library != nullptr);
  const auto get = reinterpret_cast<FakeNccl* (*)()>(
      dlsym(library, "skrull_test_fake_nccl"));
  REQUIRE(get != nullptr);
  return get();
}

using Change = std::function<void(int32_t rank, skrull_comm_options*)>;

// A rank's communicator, and how its creation went.
struct NcclRanks {
  explicit NcclRanks(int32_t count, const Change& change = nullptr)
      : comms(static_cast<size_t>(count)) {
    Meeting meeting;
    answers = OnRanks(count, [&](int32_t rank) {
      skrull_comm_options options = HostOptions(rank, count, &meeting);
      options.name = "nccl";
      options.directory = kDirectory.c_str();
      options.device_ordinal = rank;
      if (change) change(rank, &options);
      return skrull_comm_create(&options, &comms[static_cast<size_t>(rank)]);
    });
  }
  ~NcclRanks() {
    OnRanks(static_cast<int32_t>(comms.size()), [&](int32_t rank) {
      skrull_comm_destroy(comms[static_cast<size_t>(rank)]);
      return 0;
    });
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  void RequireOk() const {
    for (const Answer& answer : answers) {
      INFO(answer.message);
      REQUIRE(answer.code == SKRULL_OK);
    }
  }

  std::vector<skrull_comm*> comms;
  std::vector<Answer> answers;
};

// An executor on a device whose memory says that it is CUDA's.
struct GpuRank {
  explicit GpuRank(skrull_comm* comm) {
    skrull_device_options on{};
    on.struct_bytes = sizeof(on);
    on.name = "good";
    on.directory = kDirectory.c_str();
    REQUIRE(skrull_device_create(&on, &device) == SKRULL_OK);
    skrull_attention_table table{};
    table.struct_bytes = sizeof(table);
    table.memory = 1;
    table.forward = table.backward = [](void*, const skrull_attention_call*,
                                        char*, int64_t) { return 0; };
    REQUIRE(skrull_backend_create_user(&table, &backend) == SKRULL_OK);
    const skrull_executor_options options = ExecutorOptionsOf(kProblem);
    REQUIRE(skrull_executor_create(&options, device, backend, comm,
                                   &executor) == SKRULL_OK);
  }
  ~GpuRank() {
    skrull_device_destroy(device);
    skrull_backend_destroy(backend);
    skrull_executor_destroy(executor);
    skrull_step_destroy(step);
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int32_t Prepare(const TestPlan& of, int32_t rank,
                  const std::string& digest = kDigest) {
    const PlanArrays arrays(of.ForRank(rank), of.ranks, digest);
    const skrull_rank_plan given = arrays.Get();
    skrull_plan* plan = nullptr;
    if (const int32_t code = skrull_plan_create(&given, &plan)) return code;
    const int32_t code = skrull_executor_prepare(executor, plan, &step);
    skrull_plan_destroy(plan);
    return code;
  }

  skrull_device* device = nullptr;
  skrull_backend* backend = nullptr;
  skrull_executor* executor = nullptr;
  skrull_step* step = nullptr;
};

// A sequence on all ranks, and one on two of them.
const TestPlan kThreeRanks = {.ranks = 3,
                              .micro_batches = {{{0, 20, 0, 3}, {1, 9, 1, 2}}}};

std::vector<std::unique_ptr<GpuRank>> Executors(const NcclRanks& ranks) {
  std::vector<std::unique_ptr<GpuRank>> made;
  for (skrull_comm* comm : ranks.comms) {
    made.push_back(std::make_unique<GpuRank>(comm));
  }
  return made;
}

}  // namespace

TEST_CASE("C API: NCCL's communicators are made, split and closed",
          "[c_api][nccl]") {
  FakeNccl* const fake = Fake();
  const FakeNccl::Counts before = fake->counts();
  const size_t splits = fake->splits().size();
  const int32_t plain = GENERATE(0, 1);
  {
    const NcclRanks ranks(3, [&](int32_t, skrull_comm_options* options) {
      options->plain_buffers = plain;
    });
    ranks.RequireOk();
    CHECK(fake->counts().communicators == 3);
    CHECK(fake->devices() == std::set<int32_t>{0, 1, 2});
    const auto executors = Executors(ranks);
    for (const char digit : {'e', '0'}) {
      const auto answers = OnRanks(3, [&](int32_t rank) {
        return executors[static_cast<size_t>(rank)]->Prepare(
            kThreeRanks, rank, std::string(64, rank == 1 ? digit : '0'));
      });
      // The host pool compares plans: a wrong one costs NCCL nothing.
      for (const Answer& answer : answers) {
        INFO(answer.message);
        CHECK(answer.code ==
              (digit == 'e' ? SKRULL_FAILED_PRECONDITION : SKRULL_OK));
      }
    }
    // Of all ranks, and of two.
    CHECK(fake->counts().communicators == 5);
    CHECK(fake->splits().size() == splits + 1);
    CHECK(fake->counts().buffers > 0);
    CHECK((fake->counts().windows > 0) == (plain == 0));
  }
  const FakeNccl::Counts after = fake->counts();
  CHECK(after.communicators == 0);
  CHECK(after.buffers == 0);
  CHECK(after.windows == 0);
  CHECK(after.aborted == before.aborted);
  CHECK(after.destroyed == before.destroyed + 5);
  CHECK(after.misuses == before.misuses);
}

TEST_CASE("C API: a rank that aborts releases NCCL's communicators of all",
          "[c_api][nccl]") {
  FakeNccl* const fake = Fake();
  const NcclRanks ranks(3);
  ranks.RequireOk();
  const auto executors = Executors(ranks);
  const auto answers = OnRanks(3, [&](int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    return rank == 2 ? skrull_comm_abort(ranks.comms[r], "lunch")
                     : executors[r]->Prepare(kThreeRanks, rank);
  });
  CHECK(answers[2].code == SKRULL_OK);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(answers[rank].code == SKRULL_ABORTED);
    CHECK_THAT(answers[rank].message,
               Catch::Contains("rank 2") && Catch::Contains("lunch"));
  }
  CHECK(fake->counts().communicators == 0);
}

TEST_CASE("C API: a rank without NCCL says what is missing, to all",
          "[c_api][nccl]") {
  struct Case {
    const char* directory;
    int32_t code;
    const char* text;
  };
  const auto [directory, code, text] =
      GENERATE(Case{"/nowhere", SKRULL_NOT_FOUND, "libskrull_comm_nccl.so"},
               Case{"broken", SKRULL_NOT_FOUND,
                    "skrull_test_function_of_a_missing_library"},
               Case{"lacking", SKRULL_NOT_FOUND, "libskrull_test_absent.so"},
               Case{"empty", SKRULL_UNSUPPORTED, "exports no communicator"},
               Case{"old", SKRULL_UNSUPPORTED, "interface version -1"});
  INFO(directory);
  const std::string path =
      *directory == '/' ? directory : kDirectory + "/" + directory;
  const NcclRanks ranks(2, [&](int32_t rank, skrull_comm_options* options) {
    if (rank == 1) options->directory = path.c_str();
  });
  INFO(ranks.answers[0].message << "; " << ranks.answers[1].message);
  CHECK(ranks.answers[1].code == code);
  CHECK_THAT(ranks.answers[1].message, Catch::Contains(text));
  CHECK(ranks.answers[0].code == SKRULL_ABORTED);
  CHECK_THAT(ranks.answers[0].message,
             Catch::Contains("rank 1") && Catch::Contains(text));
  CHECK(Fake()->counts().communicators == 0);
  for (const skrull_comm* comm : ranks.comms) CHECK(comm == nullptr);
}

TEST_CASE("C API: what NCCL's communicators cannot do is refused",
          "[c_api][nccl]") {
  Meeting meeting;
  skrull_comm* comm = nullptr;
  const auto with = [&](const auto& change) {
    skrull_comm_options options = HostOptions(0, 1, &meeting);
    options.name = "nccl";
    options.directory = kDirectory.c_str();
    change(&options);
    return skrull_comm_create(&options, &comm);
  };
  CheckRefused(with([](auto* o) { o->plain_buffers = 2; }),
               "plain_buffers is 2");
  CheckRefused(with([](auto* o) { o->device_ordinal = -1; }),
               "device_ordinal is -1");
  CheckRefused(with([](auto* o) { o->rendezvous = nullptr; }),
               "rendezvous is NULL");
  CHECK(comm == nullptr);
  REQUIRE(with([](auto*) {}) == SKRULL_OK);
  CheckRefused(with([&](auto* o) { o->peer = comm; }), "nccl communicator");

  // It exchanges memory of CUDA, and nothing else does.
  skrull_device* device = NewDevice();
  skrull_backend* backend = NewBackend();
  const skrull_executor_options options = ExecutorOptionsOf(kProblem);
  skrull_executor* executor = nullptr;
  CheckRefused(
      skrull_executor_create(&options, device, backend, comm, &executor),
      "communicator nccl does not work on the memory of device cpu");
  skrull_device_destroy(device);
  skrull_comm_destroy(comm);
  const std::vector<skrull_comm*> pool = NewPool(1);
  skrull_device_options on{};
  on.struct_bytes = sizeof(on);
  on.name = "good";
  on.directory = kDirectory.c_str();
  REQUIRE(skrull_device_create(&on, &device) == SKRULL_OK);
  CheckRefused(
      skrull_executor_create(&options, device, backend, pool[0], &executor),
      "communicator in_process does not work on the memory of device good");
  CHECK(executor == nullptr);
  skrull_comm_destroy(pool[0]);
  skrull_device_destroy(device);
  skrull_backend_destroy(backend);
}

TEST_CASE("C API: a communicator's options of version 1 are enough",
          "[c_api]") {
  skrull_comm_options options = CommOptions(0, 1, nullptr);
  options.struct_bytes = offsetof(skrull_comm_options, directory);
  options.plain_buffers = 77;  // never read
  skrull_comm* comm = nullptr;
  CHECK(skrull_comm_create(&options, &comm) == SKRULL_OK);
  skrull_comm_destroy(comm);
}

TEST_CASE("OpenNccl: one table for the whole process", "[nccl]") {
  const auto opened = OpenNccl(kDirectory);
  REQUIRE(opened.ok());
  CHECK(*opened == Fake());
  CHECK(*OpenNccl(kDirectory) == *opened);
}

}  // namespace skrull::exec::testing
