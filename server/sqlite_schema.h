// The store's database file: its tables, its version, and whether it is sound.
#ifndef SKRULL_SERVER_SQLITE_SCHEMA_H_
#define SKRULL_SERVER_SQLITE_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/server/file_lock.h"
#include "skrull/server/sqlite.h"

namespace skrull {

// Version of the tables this code writes, kept in the file's user_version.
// Whoever changes the tables raises it, and adds the step to it from the one
// before to kUpgrades.
inline constexpr int64_t kStoreSchemaVersion = 2;

// The file's application_id: "skrl".
inline constexpr int64_t kStoreApplicationId = 0x736b726c;

// An open store file. The lock outlives the connection.
struct StoreDatabase {
  FileLock lock;
  SqliteDatabase database;
};

// Opens the store's database, making the file and its tables when missing, and
// checks all of it but the values that rows have sums of, which are checked as
// they are read: O(file size). A file of an older version is brought up to
// this one in one transaction; older daemons refuse it then. It is the only one
// to do so as long as the lock lives, which is that of a file beside it,
// "<path>-lock"; tools may read the database meanwhile. The connection syncs
// every commit. Errors: kStoreFailed naming the path when the file cannot be
// opened or written, is held by another daemon, is corrupt, is not a store, or
// was written by a newer version; its contents are then left alone.
absl::StatusOr<StoreDatabase> OpenStoreDatabase(const std::string& path);

}  // namespace skrull

#endif  // SKRULL_SERVER_SQLITE_SCHEMA_H_
