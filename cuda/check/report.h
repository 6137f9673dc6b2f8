// What a check found, written section by section.
#ifndef SKRULL_CUDA_CHECK_REPORT_H_
#define SKRULL_CUDA_CHECK_REPORT_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace skrull::check {

// A figure that the project promises, beside what was measured. One that is
// missed is a finding, not a failure.
struct Target {
  std::string figure;
  double value = 0;
  double least = 0;

  bool met() const { return value >= least; }
};

// `json` has an array of cases for each section; `text` the same for a person;
// `failures` what is wrong, by section and case: results beyond their limits,
// and calls that failed.
struct CheckReport {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::string text = {};
  std::vector<std::string> failures = {};
  std::vector<Target> targets = {};
  // Gets the text as it is written, or null; outlives the report.
  std::ostream* live = nullptr;
};

// Begins a section and adds its cases. The report outlives it.
class SectionWriter {
 public:
  SectionWriter(const std::string& section, CheckReport* report);

  void Add(const std::string& name, const nlohmann::ordered_json& values,
           const std::string& text);
  void Fail(const std::string& name, const std::string& why);
  // A case that did not run: no failure, but nothing is known of it.
  void Skip(const std::string& name, const std::string& why);
  // A share of the whole, 0.7 for 70 %.
  void AddTarget(const std::string& name, double value, double least);

 private:
  void Write(const std::string& text);

  const std::string section_;
  CheckReport* const report_;
};

// A line for each target; empty without any.
std::string TargetText(const std::vector<Target>& targets);
nlohmann::ordered_json TargetJson(const std::vector<Target>& targets);

// Like std::printf. REQUIRES: the result has less than 256 characters.
__attribute__((format(printf, 1, 2))) std::string Format(const char* format,
                                                         ...);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_REPORT_H_
