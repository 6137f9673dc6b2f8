#include "skrull/cuda/attention/cudnn/plan_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

namespace skrull::exec::cudnn {
namespace {

// Grows with every change of the format.
constexpr std::string_view kMagic = "skrull cudnn plan 1\n";

// FNV-1a: a hash that no library's version changes.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  }
  return hash;
}

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(value));
  return text;
}

// What stands before the plan; of one size for all plans of a name.
std::string Head(const std::string& name, std::string_view plan) {
  return std::string(kMagic) + Hex(name.size()) + " " + Hex(plan.size()) + " " +
         Hex(Hash(plan)) + "\n" + name + "\n";
}

Status Failed(const std::string& what, const std::string& path,
              const std::string& why) {
  return {StatusCode::kInternal, what + " " + path + ": " + why};
}

std::string LastError() {
  return std::error_code(errno, std::generic_category()).message();
}

// All of it in the file, or a Status and maybe a part.
Status WriteAll(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("cannot write", path, LastError());
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

std::string PlanFiles::PathOf(const std::string& name) const {
  return directory_ + "/" + Hex(Hash(name)) + ".plan";
}

std::optional<std::string> PlanFiles::Read(const std::string& name) const {
  std::ifstream file(PathOf(name), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  // The head follows from name and plan, so it is compared, not parsed.
  const size_t head = Head(name, "").size();
  if (all.size() < head) return std::nullopt;
  std::string plan = all.substr(head);
  if (all.compare(0, head, Head(name, plan)) == 0) return plan;
  return std::nullopt;
}

Status PlanFiles::Write(const std::string& name,
                        const std::string& plan) const {
  const std::string path = PathOf(name);
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return Failed("cannot make", directory_, error.message());
  std::string aside = path + ".XXXXXX";
  const int file = mkstemp(aside.data());
  if (file < 0) return Failed("cannot make", aside, LastError());
  Status status = WriteAll(file, Head(name, plan) + plan, aside);
  if (close(file) != 0 && status.ok()) {
    status = Failed("cannot write", aside, LastError());
  }
  if (status.ok() && rename(aside.c_str(), path.c_str()) != 0) {
    status = Failed("cannot rename to", path, LastError());
  }
  if (!status.ok()) unlink(aside.c_str());
  return status;
}

}  // namespace skrull::exec::cudnn
