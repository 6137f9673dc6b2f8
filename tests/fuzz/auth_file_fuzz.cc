// The text of an auth file: it is refused, or every entry lets in who it names
// and nobody else. Seeds: corpus/auth_file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "skrull/server/auth/auth_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto table = skrull::AuthTable::Parse(text, "auth");
  if (!table.ok()) {
    if (!absl::IsInvalidArgument(table.status())) std::abort();
    return 0;
  }
  if (table->size() < 1 || table->size() > skrull::AuthTable::kMaxEntries) {
    std::abort();
  }
  // No file can hold the digest of its own text, or of nothing.
  if (table->FindToken(text) || table->FindToken("")) std::abort();
  const auto caller = table->FindCertificate({"spiffe://ml/x"});
  if (caller && !table->has_certificates()) std::abort();
  return 0;
}
