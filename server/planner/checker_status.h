// How the plan checker compares figures and says what is wrong. For the files
// of the checker alone.
#ifndef SKRULL_SERVER_PLANNER_CHECKER_STATUS_H_
#define SKRULL_SERVER_PLANNER_CHECKER_STATUS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skrull::checker {

// True if both are finite and equal to 1e-9, relative.
inline bool NearlyEqual(double a, double b) {
  constexpr double kRelativeTolerance = 1e-9;
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <=
             kRelativeTolerance * std::max(std::abs(a), std::abs(b));
}

// Shows enough digits that two values that differ by more than the tolerance
// look different.
inline std::string Digits(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.12g", value);
  return text;
}

// FAILED_PRECONDITION, "<rule>: <where>: <problem>".
inline absl::Status Broken(const std::string& rule, const std::string& where,
                           const std::string& problem) {
  return absl::FailedPreconditionError(
      absl::StrCat(rule, ": ", where, ": ", problem));
}

// A figure of the plan that is not what the rest of it gives.
inline absl::Status WrongCount(const std::string& where,
                               const std::string& field, int64_t in_plan,
                               int64_t recomputed) {
  return Broken(
      "figures", where,
      absl::StrCat(field, " is ", in_plan, ", recomputed ", recomputed));
}

inline absl::Status WrongReal(const std::string& where,
                              const std::string& field, double in_plan,
                              double recomputed) {
  return Broken("figures", where,
                absl::StrCat(field, " is ", Digits(in_plan), ", recomputed ",
                             Digits(recomputed)));
}

}  // namespace skrull::checker

#endif  // SKRULL_SERVER_PLANNER_CHECKER_STATUS_H_
