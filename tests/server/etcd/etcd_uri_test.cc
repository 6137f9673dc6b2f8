#include "skrull/server/etcd/etcd_uri.h"

#include <catch2/catch.hpp>

#include "skrull/planner/error.h"

namespace skrull {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("ParseEtcdUri: reads members and prefix", "[server][etcd]") {
  struct Row {
    const char* uri;
    std::vector<std::string> endpoints;
    const char* prefix;
  };
  const Row row =
      GENERATE(Row{"etcd://a:1/p", {"a:1"}, "/p/"},
               Row{"etcd://a.b-c_d:65535/p/", {"a.b-c_d:65535"}, "/p/"},
               Row{"etcd://127.0.0.1:2379,[::1]:2380/team/x.y",
                   {"127.0.0.1:2379", "[::1]:2380"},
                   "/team/x.y/"});
  CAPTURE(row.uri);
  const absl::StatusOr<EtcdLocation> location = ParseEtcdUri(row.uri);
  REQUIRE(location.ok());
  CHECK(location->endpoints == row.endpoints);
  CHECK(location->prefix == row.prefix);
}

TEST_CASE("ParseEtcdUri: refuses other forms and says why", "[server][etcd]") {
  struct Row {
    const char* uri;
    const char* problem;
  };
  const Row row = GENERATE(
      Row{"etcd:a:1/p", "is not etcd://"}, Row{"", "is not etcd://"},
      Row{"etcd:///p", "\"\" is not HOST:PORT"},
      Row{"etcd://a/p", "\"a\" is not HOST:PORT"},
      Row{"etcd://a:0/p", "\"a:0\" is not HOST:PORT"},
      Row{"etcd://a:65536/p", "is not HOST:PORT"},
      Row{"etcd://a:1,/p", "\"\" is not HOST:PORT"},
      Row{"etcd://a:1, b:2/p", "\" b:2\" is not HOST:PORT"},
      Row{"etcd://a b:1/p", "is not HOST:PORT"},
      Row{"etcd://[::1/p:1/p", "is not HOST:PORT"},
      Row{"etcd://::1:2379/p", "is not HOST:PORT"},
      Row{"etcd://a:1", "the prefix"}, Row{"etcd://a:1/", "the prefix"},
      Row{"etcd://a:1//p", "the prefix"}, Row{"etcd://a:1/p//q", "the prefix"},
      Row{"etcd://a:1/p q", "the prefix"},
      Row{"etcd://a:1/p?x=1", "the prefix"});
  CAPTURE(row.uri);
  const absl::Status status = ParseEtcdUri(row.uri).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains(row.problem));
  CHECK(GetErrorDetail(status)->field == "store");
}

}  // namespace
}  // namespace skrull
