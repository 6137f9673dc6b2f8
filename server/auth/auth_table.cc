#include "skrull/server/auth/auth_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "skrull/planner/error.h"
#include "skrull/server/auth/authorize.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

constexpr size_t kMaxSubjectBytes = 128;
constexpr char kDigestPrefix[] = "sha256:";
constexpr char kCertificate[] = "cert";

bool IsAlphanumeric(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c));
}

// The digest after "sha256:" in lower case; empty if the word is none.
std::string DigestOf(const std::string& word) {
  constexpr size_t kHexDigits = 64;
  const size_t prefix = sizeof(kDigestPrefix) - 1;
  if (word.size() != prefix + kHexDigits || !word.starts_with(kDigestPrefix)) {
    return "";
  }
  std::string digest = absl::AsciiStrToLower(word.substr(prefix));
  const bool is_hex = std::all_of(digest.begin(), digest.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  return is_hex ? digest : "";
}

// The words of a line before its comment.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  for (const std::string& word : std::vector<std::string>(
           absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty()))) {
    if (word.front() == '#') break;
    words.push_back(word);
  }
  return words;
}

// See Caller::subject.
bool IsSubject(const std::string& text) {
  if (text.empty() || text.size() > kMaxSubjectBytes ||
      !IsAlphanumeric(text.front())) {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    return IsAlphanumeric(c) ||
           std::string_view("._@:/-").find(c) != std::string_view::npos;
  });
}

// nullopt for a word that is no role.
std::optional<Role> RoleFromName(const std::string& name) {
  for (Role role : {Role::kAdmin, Role::kOwner, Role::kReader}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<AuthTable> AuthTable::Parse(const std::string& text,
                                           const std::string& file) {
  AuthTable table;
  std::map<std::string, Role> roles;
  int64_t number = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const std::string where = absl::StrCat(file, " line ", ++number);
    const std::vector<std::string> words = Words(line);
    if (words.empty()) continue;
    if (words.size() != 3) {
      return FieldError(where, "is not of the form SUBJECT ROLE HOW");
    }
    if (table.size() == kMaxEntries) {
      return FieldError(where, absl::StrCat("is entry ", kMaxEntries + 1,
                                            " of at most ", kMaxEntries));
    }
    const std::string& subject = words[0];
    if (!IsSubject(subject)) {
      return FieldError(where,
                        "the subject must be 1 to 128 letters, digits and "
                        "._@:/-, the first a letter or digit");
    }
    const std::optional<Role> role = RoleFromName(words[1]);
    if (!role) {
      return FieldError(where, "the role must be admin, owner or reader");
    }
    if (!roles.emplace(subject, *role).second && roles[subject] != *role) {
      return FieldError(where, "the subject has another role above");
    }
    const Caller caller{.subject = subject, .role = *role};
    const std::string digest = DigestOf(words[2]);
    if (digest.empty() && words[2] != kCertificate) {
      return FieldError(where,
                        "the third word must be cert, or sha256: and 64 "
                        "hexadecimal digits");
    }
    const bool is_new =
        digest.empty() ? table.certificates_.emplace(subject, caller).second
                       : table.tokens_.emplace(digest, caller).second;
    if (!is_new) return FieldError(where, "is there a second time");
  }
  if (table.size() == 0) return FieldError(file, "has no entry");
  return table;
}

std::optional<Caller> AuthTable::FindToken(const std::string& token) const {
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return std::nullopt;
  }
  const auto found = tokens_.find(Sha256Hex(token));
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

std::optional<Caller> AuthTable::FindCertificate(
    const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    const auto found = certificates_.find(name);
    if (found != certificates_.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace skrull
