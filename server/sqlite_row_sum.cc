#include "skrull/server/sqlite_row_sum.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace skrull {
namespace {

constexpr size_t kSumBytes = 8;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

void RowSum(sqlite3_context* call, int count, sqlite3_value** values) {
  const std::unique_ptr<EVP_MD_CTX, FreeContext> hash(EVP_MD_CTX_new());
  bool ok = hash != nullptr &&
            EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  for (int i = 0; ok && i < count; ++i) {
    const void* const data = sqlite3_value_blob(values[i]);
    const auto size = static_cast<size_t>(sqlite3_value_bytes(values[i]));
    // The length first, so that "a", "bc" is not "ab", "c".
    const std::string length = absl::StrCat(size, ":");
    ok = EVP_DigestUpdate(hash.get(), length.data(), length.size()) == 1 &&
         EVP_DigestUpdate(hash.get(), data, size) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  ok = ok && EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr) == 1;
  if (!ok) return sqlite3_result_error_nomem(call);
  const std::string sum = absl::BytesToHexString(
      std::string(digest.begin(), digest.begin() + kSumBytes));
  sqlite3_result_text(call, sum.data(), static_cast<int>(sum.size()),
                      SQLITE_TRANSIENT);
}

}  // namespace

absl::Status AddRowSum(SqliteDatabase* database) {
  return database->AddFunction("row_sum", &RowSum);
}

}  // namespace skrull
