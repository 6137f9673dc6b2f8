// The little of SQLite that the store needs, with owned handles and statuses.
//
// Nothing here is thread-safe: one connection and its statements belong to one
// mutex. Every error is kStoreFailed and names the file.
#ifndef SKRULL_SERVER_SQLITE_H_
#define SKRULL_SERVER_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skrull {

// A prepared statement. Parameters and columns are numbered from 0.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  SqliteStatement& Bind(int parameter, int64_t value);
  SqliteStatement& BindText(int parameter, std::string_view value);
  SqliteStatement& BindBlob(int parameter, std::string_view value);

  // True if it stands on a row. Reports a failed Bind as well. The statement is
  // ready to be bound and run again after it returned false or failed.
  absl::StatusOr<bool> Step();
  // For statements that return no rows, or whose rows do not matter.
  absl::Status Run();
  // Leaves the row it stands on. Harmless if there is none.
  void Reset();

  // Of the row it stands on.
  int64_t Int(int column) const;
  std::string Bytes(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const {
      sqlite3_finalize(statement);
    }
  };

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::string path_;
  int bind_result_ = SQLITE_OK;
};

// Resets a statement at the end of a scope, so that no read stays open.
class SqliteReset {
 public:
  explicit SqliteReset(SqliteStatement* statement) : statement_(statement) {}
  ~SqliteReset() { statement_->Reset(); }
  SqliteReset(const SqliteReset&) = delete;
  SqliteReset& operator=(const SqliteReset&) = delete;

 private:
  SqliteStatement* const statement_;
};

// A connection. Its statements must be destroyed before it.
class SqliteDatabase {
 public:
  SqliteDatabase() = default;

  // Opens the file, creating it when missing. Does not read it yet. A lock held
  // by another connection is waited for up to `busy_milliseconds`.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path,
                                             int busy_milliseconds);

  // A database of its own in memory.
  static absl::StatusOr<SqliteDatabase> OpenInMemory();

  // Gives statements a pure function of any number of values.
  absl::Status AddFunction(const char* name,
                           void (*function)(sqlite3_context*, int,
                                            sqlite3_value**));

  // Runs statements separated by semicolons, ignoring their rows.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);

  // First column of the first row; an error if there is none.
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);

  // True between BEGIN and COMMIT or ROLLBACK.
  bool in_transaction() const { return !sqlite3_get_autocommit(db_.get()); }
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };

  // `file` is what SQLite knows it as.
  static absl::StatusOr<SqliteDatabase> OpenFile(const std::string& path,
                                                 const std::string& file);
  absl::Status LastError() const;

  std::unique_ptr<sqlite3, Close> db_;
  std::string path_;
};

// A write transaction; rolled back at the end of its scope unless committed.
class SqliteTransaction {
 public:
  // `database` must outlive it.
  explicit SqliteTransaction(SqliteDatabase* database) : database_(database) {}
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;

  absl::Status Begin() { return database_->Execute("BEGIN IMMEDIATE"); }
  // On failure the transaction is rolled back.
  absl::Status Commit() { return database_->Execute("COMMIT"); }

 private:
  SqliteDatabase* const database_;
};

}  // namespace skrull

#endif  // SKRULL_SERVER_SQLITE_H_
