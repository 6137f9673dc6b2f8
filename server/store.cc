#include "skrull/server/store.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/memory_store.h"
#include "skrull/server/sqlite_store.h"

namespace skrull {

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& uri) {
  if (uri == "memory") return std::make_unique<MemoryStore>();
  const std::string scheme = "sqlite:";
  const bool is_sqlite =
      uri.rfind(scheme, 0) == 0 && uri.size() > scheme.size();
  if (!is_sqlite || uri.find('\0') != std::string::npos) {
    return FieldError("store", absl::StrCat("\"", absl::CHexEscape(uri),
                                            "\" is not memory or sqlite:PATH"));
  }
  return SqliteStore::Open(uri.substr(scheme.size()));
}

}  // namespace skrull
