#include "skrull/client/internal/credentials.h"

#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "skrull/client/internal/replica_set.h"
#include "skrull/client/internal/wire.h"
#include "skrull/server/address.h"

namespace skrull::client_internal {
namespace {

// What fits into metadata beside everything else.
constexpr size_t kMaxTokenBytes = 4096;

absl::StatusOr<std::string> ReadFile(const char* field,
                                     const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  if (file.bad() || !file.is_open()) {
    return InvalidField(field, absl::StrCat("cannot read ", path));
  }
  return text;
}

// Errors: INVALID_ARGUMENT, which does not quote it.
absl::Status CheckToken(const char* field, const std::string& token) {
  const bool is_visible = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!token.empty() && token.size() <= kMaxTokenBytes && is_visible) {
    return absl::OkStatus();
  }
  return InvalidField(field, absl::StrCat("a token is 1 .. ", kMaxTokenBytes,
                                          " visible ASCII characters"));
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         a.st_size == b.st_size && a.st_ctim.tv_sec == b.st_ctim.tv_sec &&
         a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

absl::Status CheckCredentialOptions(const ClientOptions& options) {
  const bool has_tls = !options.tls_ca_file.empty();
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return InvalidField(
        options.tls_key_file.empty() ? "tls_key_file" : "tls_cert_file",
        "a client certificate needs its key, and a key its certificate");
  }
  if (!has_tls &&
      !(options.tls_cert_file.empty() && options.tls_server_name.empty())) {
    return InvalidField("tls_ca_file", "the other options of TLS need it");
  }
  if (!options.token.empty() && !options.token_file.empty()) {
    return InvalidField("token_file", "token is set as well");
  }
  const bool has_token = !options.token.empty() || !options.token_file.empty();
  const std::vector<std::string> replicas = SplitAddress(options.address);
  if (has_token && !has_tls && !options.allow_plaintext_token &&
      !std::all_of(replicas.begin(), replicas.end(), IsLocalAddress)) {
    return InvalidField("tls_ca_file",
                        absl::StrCat("the token would cross the network to ",
                                     options.address, " in plain text"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
MakeChannelCredentials(const ClientOptions& options) {
  if (options.tls_ca_file.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  struct Part {
    const char* field;
    const std::string& path;
    std::string* out;
  };
  for (const Part& part :
       {Part{"tls_ca_file", options.tls_ca_file, &tls.pem_root_certs},
        Part{"tls_cert_file", options.tls_cert_file, &tls.pem_cert_chain},
        Part{"tls_key_file", options.tls_key_file, &tls.pem_private_key}}) {
    if (part.path.empty()) continue;
    absl::StatusOr<std::string> text = ReadFile(part.field, part.path);
    if (!text.ok()) return text.status();
    *part.out = *std::move(text);
    // gRPC would take nothing for "trust whom the system trusts".
    if (part.out->empty()) return InvalidField(part.field, "is empty");
  }
  return grpc::SslCredentials(tls);
}

absl::StatusOr<std::unique_ptr<TokenSource>> TokenSource::Create(
    const ClientOptions& options) {
  std::unique_ptr<TokenSource> source(new TokenSource(options.token_file));
  if (!options.token.empty()) {
    absl::Status status = CheckToken("token", options.token);
    if (!status.ok()) return status;
    source->token_ = options.token;
  }
  if (!options.token_file.empty()) {
    absl::Status status = source->Refresh();
    if (!status.ok()) return status;
  }
  return source;
}

std::string TokenSource::Current() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!file_.empty()) (void)Refresh();
  return token_;
}

absl::Status TokenSource::Refresh() {
  struct stat now = {};
  if (::stat(file_.c_str(), &now) == 0) {
    if (looked_ && IsSame(*looked_, now)) return absl::OkStatus();
    looked_ = now;
  }
  const absl::StatusOr<std::string> text = ReadFile("token_file", file_);
  if (!text.ok()) return text.status();
  const std::string token(absl::StripAsciiWhitespace(*text));
  absl::Status status = CheckToken("token_file", token);
  if (status.ok()) token_ = token;
  return status;
}

}  // namespace skrull::client_internal
