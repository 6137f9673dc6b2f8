#include "skrull/cli/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace skrull::cli {
namespace {

constexpr int kMode = 0600;

la_ssize_t AppendTo(archive*, void* user, const void* data, size_t size) {
  static_cast<std::string*>(user)->append(static_cast<const char*>(data), size);
  return static_cast<la_ssize_t>(size);
}

absl::Status ErrorOf(archive* writer) {
  const char* const reason = archive_error_string(writer);
  return absl::InternalError(absl::StrCat(
      "cannot write the archive: ", reason != nullptr ? reason : "unknown"));
}

}  // namespace

absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files,
                                  std::chrono::system_clock::time_point time) {
  std::string bytes;
  const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(),
                                                           archive_write_free);
  if (archive_write_set_format_pax_restricted(writer.get()) != ARCHIVE_OK ||
      archive_write_add_filter_gzip(writer.get()) != ARCHIVE_OK ||
      archive_write_open2(writer.get(), &bytes, nullptr, AppendTo, nullptr,
                          nullptr) != ARCHIVE_OK) {
    return ErrorOf(writer.get());
  }
  for (const ArchivedFile& file : files) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(
        archive_entry_new(), archive_entry_free);
    archive_entry_set_pathname(entry.get(), file.name.c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), kMode);
    archive_entry_set_size(entry.get(),
                           static_cast<la_int64_t>(file.content.size()));
    archive_entry_set_mtime(entry.get(),
                            std::chrono::system_clock::to_time_t(time), 0);
    if (archive_write_header(writer.get(), entry.get()) != ARCHIVE_OK ||
        archive_write_data(writer.get(), file.content.data(),
                           file.content.size()) !=
            static_cast<la_ssize_t>(file.content.size())) {
      return ErrorOf(writer.get());
    }
  }
  if (archive_write_close(writer.get()) != ARCHIVE_OK) {
    return ErrorOf(writer.get());
  }
  return bytes;
}

}  // namespace skrull::cli
