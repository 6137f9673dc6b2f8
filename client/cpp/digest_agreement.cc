#include "skrull/client/digest_agreement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"

namespace skrull {
namespace {

// What a rank without a digest contributes. No plan has this SHA-256.
constexpr DigestBytes kNone = {};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<DigestBytes> BytesFromHex(const std::string& hex) {
  DigestBytes bytes = kNone;
  if (hex.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return bytes;
}

// The digest most ranks hold; of equally common ones that of the lowest rank.
DigestBytes MostCommon(const std::vector<DigestBytes>& all) {
  std::map<DigestBytes, int64_t> counts;
  for (const DigestBytes& digest : all) ++counts[digest];
  const DigestBytes* best = &all.front();
  for (const DigestBytes& digest : all) {
    if (counts[digest] > counts[*best]) best = &digest;
  }
  return *best;
}

// The same text on every rank: it depends on `all` alone.
absl::Status Disagreement(const std::vector<DigestBytes>& all,
                          const DigestBytes& common) {
  constexpr size_t kMaxListed = 32;
  RefusalDetail detail = {.reason = "DIGEST_MISMATCH", .field = "digest"};
  size_t count = 0;
  bool some_have_none = common == kNone;
  std::string ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == common) continue;
    ++count;
    some_have_none = some_have_none || all[rank] == kNone;
    if (count > kMaxListed) continue;
    detail.indices.push_back(static_cast<int64_t>(rank));
    absl::StrAppend(&ranks, ranks.empty() ? "" : ", ", rank);
  }
  if (count > kMaxListed) absl::StrAppend(&ranks, ", ...");
  return client_internal::MakeStatus(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat("ranks hold different plans: ", count, " of ", all.size(),
                   " differ from the most common one, at rank ", ranks,
                   some_have_none ? "; some ranks have no plan" : ""),
      detail);
}

}  // namespace

absl::Status AgreeOnDigest(const std::string& digest,
                           const DigestAllGather& all_gather) {
  // Gather before anything is refused: a rank that stayed away would leave the
  // others waiting.
  const std::optional<DigestBytes> mine = BytesFromHex(digest);
  const absl::StatusOr<std::vector<DigestBytes>> all =
      all_gather(mine.value_or(kNone));
  if (!all.ok()) return all.status();
  if (all->empty()) {
    return absl::InternalError("the all-gather returned no rank's digest");
  }
  const DigestBytes common = MostCommon(*all);
  if (std::any_of(all->begin(), all->end(),
                  [&](const DigestBytes& one) { return one != common; })) {
    return Disagreement(*all, common);
  }
  if (!mine || *mine == kNone) {
    return client_internal::InvalidField(
        "digest", digest.empty() ? "no rank has a plan"
                                 : "not the hexadecimal SHA-256 of a plan");
  }
  return absl::OkStatus();
}

}  // namespace skrull
