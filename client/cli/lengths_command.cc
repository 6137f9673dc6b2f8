#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "skrull/cli/commands.h"
#include "skrull/cli/documents.h"
#include "skrull/cli/io.h"

namespace skrull::cli {
namespace {

struct LengthsFlags {
  std::string input;
  std::string field;
  double bytes_per_token = 4;
  std::string output;
  std::optional<uint64_t> shuffle_seed;
};

absl::StatusOr<DocumentLengths> Measure(const LengthsFlags& flags) {
  Progress shown("documents read",
                 !flags.output.empty() || !OutputIsTerminal());
  const ReadProgress progress = [&](int64_t count) { shown.Show(count); };
  std::error_code ignored;
  if (std::filesystem::is_directory(flags.input, ignored)) {
    if (!flags.field.empty()) {
      return absl::InvalidArgumentError("--field needs a JSON Lines file");
    }
    return LengthsOfDirectory(flags.input, flags.bytes_per_token, progress);
  }
  const absl::StatusOr<std::string> text = ReadInput(flags.input);
  if (!text.ok()) return text.status();
  return LengthsOfJsonLines(*text, flags.input, flags.field,
                            flags.bytes_per_token, progress);
}

// The file's text: a comment on how it was made, then one length a line.
std::string LengthsText(const LengthsFlags& flags,
                        const DocumentLengths& documents) {
  std::string text =
      absl::StrCat("# ", documents.lengths.size(), " documents, in tokens of ",
                   flags.bytes_per_token, " bytes");
  if (flags.shuffle_seed) {
    absl::StrAppend(&text, ", shuffled with seed ", *flags.shuffle_seed);
  }
  absl::StrAppend(&text, "\n");
  for (int64_t length : documents.lengths) absl::StrAppend(&text, length, "\n");
  return text;
}

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file.good();
}

int RunLengths(const LengthsFlags& flags) {
  absl::StatusOr<DocumentLengths> documents = Measure(flags);
  if (documents.ok() && documents->lengths.empty()) {
    documents = absl::InvalidArgumentError(
        absl::StrCat(flags.input, ": holds no documents"));
  }
  if (!documents.ok()) {
    PrintError(std::string(documents.status().message()));
    return kExitUsage;
  }
  if (flags.shuffle_seed) Shuffle(*flags.shuffle_seed, &documents->lengths);
  const std::string text = LengthsText(flags, *documents);
  if (!(flags.output.empty() ? WriteOutput(text)
                             : WriteFile(flags.output, text))) {
    PrintError(absl::StrCat("cannot write to ", flags.output.empty()
                                                    ? "the standard output"
                                                    : flags.output));
    return kExitUsage;
  }
  if (documents->skipped > 0) {
    PrintError(absl::StrCat("skipped ", documents->skipped,
                            " empty documents and binary files"));
  }
  return kExitOk;
}

}  // namespace

void AddLengthsCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "lengths",
      "Make a lengths file from real documents: one for each text file below "
      "a directory (sorted by path; hidden entries, symbolic links, empty and "
      "binary files are skipped), or for each object of a JSON Lines file.");
  const auto flags = std::make_shared<LengthsFlags>();
  command->add_option("INPUT", flags->input, "Directory, or JSON Lines file")
      ->required();
  command
      ->add_option("--field", flags->field,
                   "Key to read: a number is tokens, a string is text. "
                   "Default: length, else text")
      ->type_name("KEY");
  command
      ->add_option("--bytes-per-token", flags->bytes_per_token,
                   "Bytes of text taken as one token; the quotient is rounded "
                   "down, to at least 1. Default: 4")
      ->type_name("BYTES")
      ->check(CLI::Range(0.001, 1e6));
  command
      ->add_option("--shuffle-seed", flags->shuffle_seed,
                   "Shuffle the lengths, the same way for the same seed")
      ->type_name("NUMBER");
  command
      ->add_option("--output", flags->output,
                   "Write here. Default: the standard output")
      ->type_name("FILE");
  command->footer(
      "Example:\n"
      "  skrullctl lengths docs --output lengths.txt\n"
      "Exit codes: 0 written; 2 usage, or an input that cannot be read.");
  command->callback([flags, exit_code] { *exit_code = RunLengths(*flags); });
}

}  // namespace skrull::cli
