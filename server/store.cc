#include "skrull/server/store.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "skrull/planner/error.h"
#include "skrull/server/etcd/etcd_store.h"
#include "skrull/server/etcd/etcd_uri.h"
#include "skrull/server/memory_store.h"
#include "skrull/server/sqlite_store.h"

namespace skrull {

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& uri,
                                                 const StoreOptions& options) {
  if (uri == "memory") return std::make_unique<MemoryStore>();
  if (IsEtcdUri(uri)) return EtcdStore::Open(uri, options);
  const std::string scheme = "sqlite:";
  const bool is_sqlite =
      uri.rfind(scheme, 0) == 0 && uri.size() > scheme.size();
  if (!is_sqlite || uri.find('\0') != std::string::npos) {
    return FieldError("store", absl::StrCat("\"", absl::CHexEscape(uri),
                                            "\" is not memory, sqlite:PATH or "
                                            "etcd://HOST:PORT/PREFIX"));
  }
  return SqliteStore::Open(uri.substr(scheme.size()));
}

}  // namespace skrull
