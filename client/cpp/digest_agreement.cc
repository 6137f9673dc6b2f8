#include "skrull/client/digest_agreement.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/client/internal/wire.h"
#include "skrull/planner/plan_digest.h"

namespace skrull {
namespace {

// The same text on every rank: it depends on `all` alone.
absl::Status Disagreement(const std::vector<DigestBytes>& all,
                          const DigestBytes& common) {
  constexpr size_t kMaxListed = 32;
  RefusalDetail detail = {.reason = "DIGEST_MISMATCH", .field = "digest"};
  size_t count = 0;
  bool some_have_none = common == kNoDigest;
  std::string ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == common) continue;
    ++count;
    some_have_none = some_have_none || all[rank] == kNoDigest;
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
  const std::optional<DigestBytes> mine = ParseDigest(digest);
  const absl::StatusOr<std::vector<DigestBytes>> all =
      all_gather(mine.value_or(kNoDigest));
  if (!all.ok()) return all.status();
  if (all->empty()) {
    return absl::InternalError("the all-gather returned no rank's digest");
  }
  const DigestBytes common = (*all)[MostCommon<DigestBytes>(*all)];
  if (std::any_of(all->begin(), all->end(),
                  [&](const DigestBytes& one) { return one != common; })) {
    return Disagreement(*all, common);
  }
  if (!mine || *mine == kNoDigest) {
    return client_internal::InvalidField(
        "digest", digest.empty() ? "no rank has a plan"
                                 : "not the hexadecimal SHA-256 of a plan");
  }
  return absl::OkStatus();
}

}  // namespace skrull
