// An etcd that speaks TLS and asks for certificates.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "skrull/tests/server/etcd/etcd_test_util.h"
#include "skrull/tests/server/store_test_util.h"
#include "skrull/tests/support/certificates.h"

namespace skrull {
namespace {

using testing::CertificateAuthority;
using testing::Etcd;
using testing::Issued;
using testing::ReasonOf;
using testing::Wanted;

TEST_CASE("EtcdStore: shows its certificate and checks etcd's",
          "[server][store][etcd]") {
  testing::TempDir directory;
  const auto file = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory.path() / name;
    testing::ReplaceFile(path, text);
    return path.string();
  };
  CertificateAuthority ca("etcd");
  CertificateAuthority stranger("stranger");
  const Issued member = ca.IssueServer();
  const Issued client = ca.Issue({.common_name = "skrulld"});
  const Issued forged = stranger.Issue({.common_name = "skrulld"});
  const std::string ca_file = file("ca.pem", ca.cert());
  Etcd etcd({.flags = {"--cert-file=" + file("member.pem", member.cert),
                       "--key-file=" + file("member.key", member.key),
                       "--trusted-ca-file=" + ca_file, "--client-cert-auth"},
             .tls = true});
  const StoreOptions good = {.etcd_timeout_seconds = 30,
                             .etcd_ca_file = ca_file,
                             .etcd_cert_file = file("client.pem", client.cert),
                             .etcd_key_file = file("client.key", client.key)};
  const auto store = OpenStore(etcd.uri("p"), good);
  INFO(store.status());
  REQUIRE(store.ok());
  CHECK((*store)->Create(Wanted("run", 0), {}).ok());

  const auto refused = [&](StoreOptions options) {
    options.etcd_timeout_seconds = 1;
    return ReasonOf(OpenStore(etcd.uri("p"), options).status()) ==
           ErrorReason::kStoreFailed;
  };
  StoreOptions bad = good;
  bad.etcd_cert_file = file("forged.pem", forged.cert);
  bad.etcd_key_file = file("forged.key", forged.key);
  CHECK(refused(bad));
  bad = good;
  bad.etcd_cert_file = bad.etcd_key_file = "";
  CHECK(refused(bad));
  bad = good;
  bad.etcd_ca_file = file("stranger.pem", stranger.cert());
  CHECK(refused(bad));
  CHECK(refused({}));  // in plain text
}

}  // namespace
}  // namespace skrull
