// Database files for the tests of the SQLite store.
#ifndef SKRULL_TESTS_SERVER_SQLITE_TEST_UTIL_H_
#define SKRULL_TESTS_SERVER_SQLITE_TEST_UTIL_H_

#include <functional>
#include <string>

#include "skrull/server/store.h"

namespace skrull::testing {

// A file's bytes; empty if there is none.
std::string ReadAll(const std::string& path);
void WriteAll(const std::string& path, const std::string& bytes);

// Runs SQL on the file with no store in between. Throws std::runtime_error.
void RunSql(const std::string& path, const std::string& sql);

// Runs `body` in a child process and returns its exit code, or 128 + signal.
int InChild(const std::function<int()>& body);

// Stores job "run" at generation 2, with 20 plans and reports, in an empty
// store. Throws if a call fails.
void Fill(Store& store);
// CHECKs that they are there.
void CheckFilled(Store& store);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_SQLITE_TEST_UTIL_H_
