// Checksums of rows, which SQLite has none of: without one, a byte that changed
// on the disk inside a value would be believed.
#ifndef SKRULL_SERVER_SQLITE_ROW_SUM_H_
#define SKRULL_SERVER_SQLITE_ROW_SUM_H_

#include "absl/status/status.h"
#include "skrull/server/sqlite.h"

namespace skrull {

// Gives the connection's statements row_sum(value, ...): text that depends on
// each value's bytes and on their order, and does not on whether a number is
// given as one or as text. 64 bits of SHA-256: against accidents, not against
// whoever can write the file. O(bytes).
absl::Status AddRowSum(SqliteDatabase* database);

}  // namespace skrull

#endif  // SKRULL_SERVER_SQLITE_ROW_SUM_H_
