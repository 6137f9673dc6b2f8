#include "skrull/server/sqlite.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "skrull/server/store_rules.h"

namespace skrull {
namespace {

std::string ErrorText(sqlite3* db, int result) {
  if ((result & 0xff) == SQLITE_BUSY) {
    return "locked by another process";
  }
  std::string text = sqlite3_errmsg(db);
  if ((result & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(db) != 0) {
    absl::StrAppend(&text, ": ",
                    std::generic_category().message(sqlite3_system_errno(db)));
  }
  return absl::StrCat(text, " (SQLite error ", result, ")");
}

}  // namespace

// ---------------------------------------------------------------------------
// SqliteStatement.

SqliteStatement& SqliteStatement::Bind(int parameter, int64_t value) {
  const int result = sqlite3_bind_int64(statement_.get(), parameter + 1, value);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
  return *this;
}

SqliteStatement& SqliteStatement::BindText(int parameter,
                                           std::string_view value) {
  const int result =
      sqlite3_bind_text64(statement_.get(), parameter + 1, value.data(),
                          value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int parameter,
                                           std::string_view value) {
  // A null pointer would bind NULL instead of no bytes.
  const char* const data = value.empty() ? "" : value.data();
  const int result = sqlite3_bind_blob64(statement_.get(), parameter + 1, data,
                                         value.size(), SQLITE_TRANSIENT);
  if (bind_result_ == SQLITE_OK) bind_result_ = result;
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int result =
      bind_result_ == SQLITE_OK ? sqlite3_step(statement_.get()) : bind_result_;
  if (result == SQLITE_ROW) return true;
  absl::Status status;
  if (result != SQLITE_DONE) {
    status = StoreFailed(
        path_, ErrorText(sqlite3_db_handle(statement_.get()), result));
  }
  Reset();
  if (!status.ok()) return status;
  return false;
}

absl::Status SqliteStatement::Run() {
  SqliteReset reset(this);
  return Step().status();
}

void SqliteStatement::Reset() {
  bind_result_ = SQLITE_OK;
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string SqliteStatement::Bytes(int column) const {
  const void* const data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  if (data == nullptr) return "";
  return std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

// ---------------------------------------------------------------------------
// SqliteDatabase.

absl::StatusOr<SqliteDatabase> SqliteDatabase::Open(const std::string& path,
                                                    int busy_milliseconds) {
  // A relative name must not read as one of SQLite's own, such as ":memory:".
  absl::StatusOr<SqliteDatabase> database =
      OpenFile(path, path.rfind('/', 0) == 0 ? path : absl::StrCat("./", path));
  if (database.ok()) {
    sqlite3_busy_timeout(database->db_.get(), busy_milliseconds);
  }
  return database;
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::OpenInMemory() {
  return OpenFile(":memory:", ":memory:");
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::OpenFile(
    const std::string& path, const std::string& file) {
  SqliteDatabase database;
  database.path_ = path;
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(
      file.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  database.db_.reset(handle);  // to be closed even if opening failed
  if (handle == nullptr) return StoreFailed(path, "out of memory");
  if (result != SQLITE_OK) return database.LastError();
  // SQLite opens a file it may not write for reading, and says nothing.
  if (sqlite3_db_readonly(handle, "main") == 1) {
    return StoreFailed(path, "not writable");
  }
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

absl::Status SqliteDatabase::AddFunction(const char* name,
                                         void (*function)(sqlite3_context*, int,
                                                          sqlite3_value**)) {
  const int result = sqlite3_create_function_v2(
      db_.get(), name, -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
      function, nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : LastError();
}

absl::Status SqliteDatabase::LastError() const {
  return StoreFailed(path_,
                     ErrorText(db_.get(), sqlite3_extended_errcode(db_.get())));
}

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) ==
      SQLITE_OK) {
    return absl::OkStatus();
  }
  return LastError();
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(
    const std::string& sql) {
  sqlite3_stmt* handle = nullptr;
  const int result =
      sqlite3_prepare_v3(db_.get(), sql.c_str(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  SqliteStatement statement;
  statement.statement_.reset(handle);
  statement.path_ = path_;
  if (result != SQLITE_OK) return LastError();
  return statement;
}

absl::StatusOr<int64_t> SqliteDatabase::QueryInt(const std::string& sql) {
  absl::StatusOr<SqliteStatement> statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  absl::StatusOr<bool> row = statement->Step();
  if (!row.ok()) return row.status();
  if (!*row) return StoreFailed(path_, absl::StrCat("no answer to ", sql));
  return statement->Int(0);
}

absl::StatusOr<std::string> SqliteDatabase::QueryText(const std::string& sql) {
  absl::StatusOr<SqliteStatement> statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  absl::StatusOr<bool> row = statement->Step();
  if (!row.ok()) return row.status();
  if (!*row) return StoreFailed(path_, absl::StrCat("no answer to ", sql));
  return statement->Bytes(0);
}

// ---------------------------------------------------------------------------
// SqliteTransaction.

SqliteTransaction::~SqliteTransaction() {
  // A failure leaves nothing more to undo; SQLite has rolled back itself.
  if (database_->in_transaction()) (void)database_->Execute("ROLLBACK");
}

}  // namespace skrull
