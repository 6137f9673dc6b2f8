#include "skrull/tests/server/sqlite_test_util.h"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "skrull/tests/server/store_test_util.h"

namespace skrull::testing {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  int result = sqlite3_open(path.c_str(), &db);
  if (result == SQLITE_OK) {
    result = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  }
  const std::string problem = sqlite3_errmsg(db);
  sqlite3_close(db);
  if (result != SQLITE_OK) throw std::runtime_error(path + ": " + problem);
}

int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) throw std::runtime_error("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Fill(Store& store) {
  store.Create(Wanted("run", 1, 2), {}).value();
  for (int64_t step = 0; step < 20; ++step) {
    store.Commit(PlanOf("run", 2, step, 0, 3000), 1000).value();
    if (!store.PutReport({"run", 2}, ReportOf(step, 0, 1), 1000).ok()) {
      throw std::runtime_error("a report is refused");
    }
  }
}

void CheckFilled(Store& store) {
  CHECK(store.Get("run")->generation == 2);
  for (int64_t step = 0; step < 20; ++step) {
    const PlanRecord expected = PlanOf("run", 2, step, 0, 3000);
    CHECK(store.Find(expected.key, 2).value() == expected);
    CHECK(store.Reports(expected.key, 2, kAllRanks)->size() == 1);
  }
}

}  // namespace skrull::testing
