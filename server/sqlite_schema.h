// The store's database file: its tables, its version, and whether it is sound.
#ifndef SKRULL_SERVER_SQLITE_SCHEMA_H_
#define SKRULL_SERVER_SQLITE_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "skrull/server/sqlite.h"

namespace skrull {

// Version of the tables this code writes, kept in the file's user_version.
// Whoever changes the tables raises it, and brings older files up to it in
// OpenStoreDatabase.
inline constexpr int64_t kStoreSchemaVersion = 1;

// The file's application_id: "skrl".
inline constexpr int64_t kStoreApplicationId = 0x736b726c;

// Opens the store's database, making the file and its tables when missing, and
// checks all of it: O(file size). The connection holds the file's lock as long
// as it lives, and syncs every commit. Errors: kStoreFailed naming the path
// when the file cannot be opened or written, is held by another process, is
// corrupt, is not a store, or was written by a newer version; its contents are
// then left alone.
absl::StatusOr<SqliteDatabase> OpenStoreDatabase(const std::string& path);

}  // namespace skrull

#endif  // SKRULL_SERVER_SQLITE_SCHEMA_H_
