#include "skrull/cuda/check/report.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace skrull::check {

using nlohmann::ordered_json;

SectionWriter::SectionWriter(const std::string& section, CheckReport* report)
    : section_(section), report_(report) {
  report_->json[section_] = ordered_json::array();
  Write((report_->text.empty() ? "" : "\n") + section_ + "\n");
}

void SectionWriter::Add(const std::string& name, const ordered_json& values,
                        const std::string& text) {
  ordered_json row = {{"case", name}};
  row.update(values);
  report_->json[section_].push_back(std::move(row));
  Write("  " + name + ": " + text + "\n");
}

void SectionWriter::Write(const std::string& text) {
  report_->text += text;
  if (report_->live != nullptr) *report_->live << text << std::flush;
}

void SectionWriter::Fail(const std::string& name, const std::string& why) {
  report_->failures.push_back(section_ + ", " + name + ": " + why);
  Add(name, {{"failure", why}}, "FAILED: " + why);
}

void SectionWriter::Skip(const std::string& name, const std::string& why) {
  Add(name, {{"skipped", why}}, "skipped: " + why);
}

void SectionWriter::AddTarget(const std::string& name, double value,
                              double least) {
  report_->targets.push_back({section_ + ", " + name, value, least});
}

std::string TargetText(const std::vector<Target>& targets) {
  if (targets.empty()) return "";
  std::string text = "\ntargets\n";
  for (const Target& target : targets) {
    text += "  " + target.figure +
            Format(": %.1f %%, target %.0f %%: %s\n", 100 * target.value,
                   100 * target.least, target.met() ? "met" : "MISSED");
  }
  return text;
}

ordered_json TargetJson(const std::vector<Target>& targets) {
  ordered_json json = ordered_json::array();
  for (const Target& target : targets) {
    json.push_back({{"figure", target.figure},
                    {"value", target.value},
                    {"target", target.least},
                    {"met", target.met()}});
  }
  return json;
}

std::string Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace skrull::check
