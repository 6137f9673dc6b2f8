#include "skrull/server/auth/auth_table.h"

#include <catch2/catch.hpp>
#include <string>

#include "skrull/planner/error.h"
#include "skrull/server/auth/identify.h"
#include "skrull/server/convert.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;

const std::string kToken = "alice-token-0123456789";
const std::string kNextToken = "alice-token-9876543210";

std::string Line(const std::string& subject, const std::string& role,
                 const std::string& token) {
  return subject + " " + role + " sha256:" + Sha256Hex(token) + "\n";
}

// Checks that the text is refused, at `where`, without being quoted.
void CheckRefused(const std::string& text, const std::string& where,
                  const std::string& problem) {
  CAPTURE(text);
  const absl::Status status = AuthTable::Parse(text, "/etc/auth").status();
  REQUIRE(GetErrorDetail(status).has_value());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  CHECK_THAT(message, Contains("/etc/auth" + where));
  CHECK_THAT(message, Contains(problem));
  CHECK_THAT(message, !Contains("sesame"));
}

TEST_CASE("AuthTable: finds callers by token and by certificate",
          "[server][auth]") {
  const AuthTable table =
      AuthTable::Parse("# who        role  how\n\n" +
                           Line("alice", "owner", kToken) +
                           "\talice owner\tsha256:" + Sha256Hex(kNextToken) +
                           " # her next one\r\n" +
                           Line("ops", "admin", "ops-token-0123456789") +
                           "spiffe://ml/reader reader cert\n"
                           "alice owner cert",
                       "auth")
          .value();
  CHECK(table.size() == 5);
  CHECK(table.has_certificates());
  const Caller alice{.subject = "alice", .role = Role::kOwner};
  CHECK(table.FindToken(kToken) == alice);
  CHECK(table.FindToken(kNextToken) == alice);
  CHECK(table.FindToken("ops-token-0123456789") ==
        Caller{.subject = "ops", .role = Role::kAdmin});
  CHECK(table.FindToken(kToken + " ") == std::nullopt);
  CHECK(table.FindToken("") == std::nullopt);
  // The digest is no token.
  CHECK(table.FindToken(Sha256Hex(kToken)) == std::nullopt);
  // A subject with a token alone has no certificate.
  CHECK(table.FindCertificate({"ops"}) == std::nullopt);
  CHECK(table.FindCertificate({}) == std::nullopt);
  CHECK(table.FindCertificate({"unknown", "alice", "spiffe://ml/reader"}) ==
        alice);
  CHECK(table.FindCertificate({"spiffe://ml/reader", "alice"}) ==
        Caller{.subject = "spiffe://ml/reader", .role = Role::kReader});
}

TEST_CASE("AuthTable: digests in capitals are the same digests",
          "[server][auth]") {
  std::string digest = Sha256Hex(kToken);
  for (char& c : digest) c = static_cast<char>(std::toupper(c));
  const AuthTable table =
      AuthTable::Parse("alice owner sha256:" + digest, "auth").value();
  CHECK(table.FindToken(kToken).has_value());
  CheckRefused("a admin sha256:" + digest + "\n" + Line("b", "admin", kToken),
               " line 2", "second time");
}

TEST_CASE("AuthTable: tokens that could be guessed are not looked at",
          "[server][auth]") {
  const std::string brief(AuthTable::kMinTokenBytes - 1, 'a');
  const std::string longest(AuthTable::kMaxTokenBytes, 'a');
  const AuthTable table =
      AuthTable::Parse(Line("a", "admin", brief) + Line("b", "admin", longest) +
                           Line("c", "admin", longest + "a") +
                           Line("d", "admin", brief + "a"),
                       "auth")
          .value();
  CHECK(table.FindToken(brief) == std::nullopt);
  CHECK(table.FindToken(brief + "a").has_value());
  CHECK(table.FindToken(longest).has_value());
  CHECK(table.FindToken(longest + "a") == std::nullopt);
}

TEST_CASE("AuthTable: a mistake is refused with its line, never quoted",
          "[server][auth]") {
  const std::string good = Line("alice", "owner", kToken);
  const std::string hex = Sha256Hex(kToken);
  CheckRefused("", "", "no entry");
  CheckRefused("\n# alice owner cert\n", "", "no entry");
  CheckRefused(good + "sesame\n", " line 2", "form");
  CheckRefused("alice owner cert sesame\n", " line 1", "form");
  CheckRefused("alice owner\n", " line 1", "form");
  CheckRefused("alice sesame cert\n", " line 1", "role");
  CheckRefused("alice Owner cert\n", " line 1", "role");
  CheckRefused("alice owner sesame\n", " line 1", "third");
  CheckRefused("alice owner sha256:sesame\n", " line 1", "third");
  CheckRefused("alice owner sha256:" + hex + "0\n", " line 1", "third");
  CheckRefused("alice owner sha256:g" + hex.substr(1) + "\n", " line 1",
               "third");
  CheckRefused("alice owner SHA256:" + hex + "\n", " line 1", "third");
  CheckRefused(good + "\n" + good, " line 3", "second time");
  CheckRefused(good + Line("bob", "owner", kToken), " line 2", "second time");
  CheckRefused("alice owner cert\nalice owner cert\n", " line 2",
               "second time");
  CheckRefused(good + Line("alice", "admin", kNextToken), " line 2",
               "another role");
  for (const std::string subject : {"-alice", ".alice", "al,ice", "al\"ice",
                                    "al=ice", "al\x80ice", "al\x01ice"}) {
    CheckRefused(subject + " owner cert\n", " line 1", "subject");
  }
  CheckRefused(std::string("a\0b owner cert\n", 15), " line 1", "subject");
  CHECK(AuthTable::Parse(std::string(128, 'a') + " owner cert", "auth").ok());
  CheckRefused(std::string(129, 'a') + " owner cert", " line 1", "subject");
}

TEST_CASE("IdentifyCaller: one token, or else a certificate",
          "[server][auth]") {
  const AuthTable table =
      AuthTable::Parse(Line("alice", "owner", kToken) + "bob reader cert",
                       "auth")
          .value();
  const Caller alice{.subject = "alice", .role = Role::kOwner};
  const Caller bob{.subject = "bob", .role = Role::kReader};
  CHECK(
      IdentifyCaller(table, {.authorization = {"Bearer " + kToken}}).value() ==
      alice);
  CHECK(
      IdentifyCaller(table, {.authorization = {"bearer " + kToken}}).value() ==
      alice);
  CHECK(IdentifyCaller(table, {.certificate_names = {"x", "bob"}}).value() ==
        bob);
  // The token counts, not the certificate of the proxy that passes it on.
  CHECK(IdentifyCaller(table, {.authorization = {"Bearer " + kToken},
                               .certificate_names = {"bob"}})
            .value() == alice);
  const ShownCredentials refused[] = {
      {},
      {.certificate_names = {"alice"}},
      {.authorization = {""}},
      {.authorization = {"Bearer"}},
      {.authorization = {"Bearer "}},
      {.authorization = {kToken}},
      {.authorization = {"Basic " + kToken}},
      {.authorization = {"Bearer  " + kToken}},
      {.authorization = {"Bearer sesame-sesame-sesame"}},
      {.authorization = {"Bearer " + kToken, "Bearer " + kToken}},
      {.authorization = {"Bearer sesame-sesame-sesame"},
       .certificate_names = {"bob"}}};
  for (const ShownCredentials& shown : refused) {
    const absl::Status status = IdentifyCaller(table, shown).status();
    REQUIRE(GetErrorDetail(status).has_value());
    CHECK(GetErrorDetail(status)->reason == ErrorReason::kUnauthenticated);
    CHECK_THAT(std::string(status.message()),
               !Contains("sesame") && !Contains(kToken));
  }
}

}  // namespace
}  // namespace skrull
