#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/io.h"
#include "skrull/server/auth/auth_table.h"
#include "skrull/server/convert.h"

namespace skrull::cli {
namespace {

struct TokenFlags {
  std::string subject;
  std::string role;
  std::string path;  // empty = the standard output
};

absl::Status SystemError(const std::string& what) {
  return absl::UnknownError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// As hard to guess as a 256-bit key. Its prefix is for those who search files
// for secrets.
absl::StatusOr<std::string> NewToken() {
  std::string bytes(32, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return SystemError("no random numbers");
  }
  return absl::StrCat("skrull_", absl::WebSafeBase64Escape(bytes));
}

// Makes a file that only its owner may read.
absl::Status WriteSecret(const std::string& path, const std::string& text) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return SystemError(path);
  const ssize_t written = ::write(file, text.data(), text.size());
  const bool complete = written == static_cast<ssize_t>(text.size());
  if (::close(file) != 0 || !complete) return SystemError(path);
  return absl::OkStatus();
}

int Fail(const absl::Status& status) {
  PrintError(std::string(status.message()));
  return kExitUsage;
}

int RunNew(const TokenFlags& flags) {
  const absl::StatusOr<std::string> token = NewToken();
  if (!token.ok()) return Fail(token.status());
  const std::string line = absl::StrCat(flags.subject, " ", flags.role,
                                        " sha256:", Sha256Hex(*token), "\n");
  // What the daemon would refuse is no use.
  const absl::Status parsed =
      AuthTable::Parse(line, "the auth file's").status();
  if (!parsed.ok()) return Fail(parsed);
  std::string text = line;
  if (flags.path.empty()) {
    text =
        absl::StrCat("# The token, shown this once: for the client.\n", *token,
                     "\n# A line of the daemon's auth_file.\n", line);
  } else {
    const absl::Status written = WriteSecret(flags.path, *token + "\n");
    if (!written.ok()) return Fail(written);
  }
  return WriteOutput(text) ? kExitOk : kExitUsage;
}

}  // namespace

void AddTokenCommand(CLI::App& app, int* exit_code) {
  CLI::App* token = app.add_subcommand(
      "token", "Make the tokens by which a daemon tells its callers apart");
  token->require_subcommand(1);
  token->footer("Example:\n  skrullctl token new alice owner");

  auto flags = std::make_shared<TokenFlags>();
  CLI::App* command = token->add_subcommand(
      "new", "Make a token, and the line of the auth_file that lets it in");
  command
      ->add_option("SUBJECT", flags->subject,
                   "Name of the caller: letters, digits and ._@:/-")
      ->required();
  command
      ->add_option("ROLE", flags->role,
                   "admin (everything), owner (creates jobs and uses its own) "
                   "or reader (looks at all)")
      ->required()
      ->check(CLI::IsMember({"admin", "owner", "reader"}));
  command
      ->add_option("--out", flags->path,
                   "Write the token to this new file, which only you can read, "
                   "and print the line alone. Default: print both")
      ->type_name("FILE");
  command->footer(
      "Example:\n"
      "  skrullctl token new alice owner --out alice.token >> auth");
  command->callback([flags, exit_code] { *exit_code = RunNew(*flags); });
}

}  // namespace skrull::cli
