#include "skrull/server/status/status_page.h"

#include <openssl/evp.h>

#include <catch2/catch.hpp>
#include <regex>

#include "absl/strings/escaping.h"
#include "skrull/server/status/html.h"
#include "skrull/tests/server/observe/example_status.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Html: nothing in a text is markup", "[server][status]") {
  CHECK(HtmlEscape("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(HtmlEscape("Zürich") == "Zürich");
  CHECK(HtmlEscape(std::string("\0\n\x7f", 3)) == "&#xFFFD;&#xFFFD;&#xFFFD;");
}

TEST_CASE("Html: numbers as people read them", "[server][status]") {
  CHECK(CountText(0) == "0");
  CHECK(CountText(999) == "999");
  CHECK(CountText(1000) == "1,000");
  CHECK(CountText(-1234567) == "-1,234,567");
  CHECK(CountText(INT64_MAX) == "9,223,372,036,854,775,807");
  CHECK(SecondsText(0) == "0 s");
  CHECK(SecondsText(12.34) == "12.3 s");
  CHECK(SecondsText(1234.5) == "1234 s");
  CHECK(SecondsText(0.99951) == "1.00 s");
  CHECK(SecondsText(0.01234) == "12.3 ms");
  CHECK(SecondsText(5.678e-4) == "568 µs");
  CHECK(SecondsText(1e-9) == "0.00 µs");
  CHECK(AgeText(-5) == "0 s");
  CHECK(AgeText(59) == "59 s");
  CHECK(AgeText(185) == "3 min 5 s");
  CHECK(AgeText(7800) == "2 h 10 min");
  CHECK(AgeText(9 * 86400 + 4 * 3600 + 59) == "9 d 4 h");
  CHECK(PercentText(0.1234) == "12.3 %");
}

TEST_CASE("StatusPage: whatever the daemon is told, the markup is our own",
          "[server][status]") {
  const std::string plain = StatusPage(testing::ExampleStatus("name"));
  const std::string hostile =
      StatusPage(testing::ExampleStatus(testing::kHostileText));
  CHECK_THAT(hostile, !Contains("<script") && !Contains("<img"));
  CHECK_THAT(hostile, Contains(HtmlEscape(testing::kHostileText)));
  // The same tags with the same attributes, in the same order.
  const auto tags = [](const std::string& page) {
    const std::regex tag("<[^>]*>");
    return std::vector<std::string>(
        std::sregex_token_iterator(page.begin(), page.end(), tag), {});
  };
  CHECK(tags(hostile) == tags(plain));
}

TEST_CASE("StatusPage: an empty daemon and a full one both make a page",
          "[server][status]") {
  const std::string empty = StatusPage(v1::ServerStatus());
  CHECK_THAT(empty, Contains("No job is registered.") &&
                        Contains("None since the start."));
  v1::ServerStatus status = testing::ExampleStatus("run7");
  status.set_draining(true);
  status.set_job_count(1000);
  const std::string page = StatusPage(status);
  CHECK_THAT(page, Contains("draining") && Contains("run7") &&
                       Contains("998 more.") && Contains("3 min 20 s ago") &&
                       Contains("rank 63: "));
}

TEST_CASE("StatusPage: the policy allows the page's own style sheet alone",
          "[server][status]") {
  const std::string page = StatusPage(v1::ServerStatus());
  const size_t begin = page.find("<style>") + 7;
  const std::string css = page.substr(begin, page.find("</style>") - begin);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  REQUIRE(EVP_Digest(css.data(), css.size(), digest, &size, EVP_sha256(),
                     nullptr) == 1);
  const std::string hash = absl::Base64Escape(
      std::string(reinterpret_cast<const char*>(digest), size));
  const auto headers = StatusPageHeaders();
  REQUIRE(headers.at(0).first == "Content-Security-Policy");
  CHECK_THAT(headers.at(0).second,
             Contains("default-src 'none'; style-src 'sha256-" + hash + "';") &&
                 !Contains("unsafe"));
  CHECK_THAT(page, !Contains(" style=") && !Contains("http://") &&
                       !Contains("https://") && !Contains("src="));
}

}  // namespace
}  // namespace skrull
